"""Names of commands that are others now; each is understood for one more release."""

from __future__ import annotations

import sys

__all__ = ["of_today"]

_NOW = {"merge_result": ["compare", "--merge"], "grad_compare": ["compare", "--gradients"]}
_OPTIONS = {"--input_dir": "--input_path", "--output_dir": "--output_path"}


def of_today(arguments: list[str]) -> list[str]:
    """Puts today's name into a command line; one sentence on stderr says what it is.

    Args:
        arguments: Without the program's name.
    """
    if not arguments or arguments[0] not in _NOW:
        return arguments
    older, *rest = arguments
    now = _NOW[older]
    words = f"`asd {older}` is `asd {' '.join(now)}` now; the older name goes with the next release."
    print(f"asd: {words}", file=sys.stderr)
    if older == "grad_compare" and len(rest) > 1 and not rest[0].startswith("-") and not rest[1].startswith("-"):
        rest = ["-tp", rest[0], "-gp", *rest[1:]]
    return [*now, *(_OPTIONS.get(each, each) for each in rest)]
