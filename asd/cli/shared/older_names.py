"""The name that other tools have for a command that is an option here."""

from __future__ import annotations

__all__ = ["of_today"]


def of_today(arguments: list[str]) -> list[str]:
    """Puts `compare --gradients` in the place of `grad_compare`, whose first two arguments are folders.

    Args:
        arguments: Without the program's name.
    """
    if arguments[:1] != ["grad_compare"]:
        return arguments
    rest = arguments[1:]
    if len(rest) > 1 and not rest[0].startswith("-") and not rest[1].startswith("-"):
        rest = ["-tp", rest[0], "-gp", *rest[1:]]
    return ["compare", "--gradients", *rest]
