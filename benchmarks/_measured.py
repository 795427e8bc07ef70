"""Writes what a benchmark measured, with the commit and the command it was measured with."""

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asd.cli.shared.machine import commit

_ROOT = Path(__file__).resolve().parents[1]
_COMMIT = commit()
"""Of the code as it was imported: later the results make the checkout a changed one."""


def write(path: Path, found: Mapping[str, Any]) -> None:
    """Writes `found` as JSON, with `measured` before it."""
    command = "python " + shlex.join(sys.orig_argv[1:]).replace(f"{_ROOT}/", "")
    about = {"commit": _COMMIT, "command": command}
    # what a file had before may come with `found`
    text = json.dumps({"measured": about} | {**found, "measured": about}, indent=1, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")
