"""`asd compare --merge`: puts the comparisons of several ranks side by side."""

from __future__ import annotations

import argparse
from pathlib import Path

from asd.errors import ConfigError

__all__ = ["run"]


def run(args: argparse.Namespace) -> int:
    """Merges and says where."""
    from asd.dumps.compare.merged_ranks import merge_ranks

    for name, value in (("--input_path", args.input_path), ("--config-path", args.config_path)):
        if value is None:
            raise ConfigError(name, None, "--merge needs it")
    target, words = merge_ranks(Path(args.input_path), Path(args.config_path), Path(args.output_path))
    print(f"{words}\n  {target}")
    return 0
