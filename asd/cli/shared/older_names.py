"""Names of commands that are others now; each is understood for one more release."""

from __future__ import annotations

import sys

__all__ = ["of_today"]

_NOW = {
    "drill": ["demo", "--fault"],
    "grad_compare": ["compare", "--gradients"],
    "stress": ["selftest", "--seconds"],
}


def of_today(arguments: list[str]) -> list[str]:
    """Puts today's name into a command line; one sentence on stderr says what it is.

    Args:
        arguments: Without the program's name.
    """
    if not arguments or arguments[0] not in _NOW:
        return arguments
    older, *rest = arguments
    command, option = _NOW[older]
    print(f"asd: '{older}' is now '{command} {option}'; the old name goes with the next release.", file=sys.stderr)
    if older == "drill":
        return [command, *(f"{option}={each}" if ":" in each and each[0] != "-" else each for each in rest)]
    if older == "stress":
        return [command, f"{option}=60", *rest]
    if older == "grad_compare" and len(rest) > 1 and not rest[0].startswith("-") and not rest[1].startswith("-"):
        rest = ["-tp", rest[0], "-gp", *rest[1:]]
    return [command, option, *rest]
