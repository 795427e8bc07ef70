"""Outputs that no data reach, such as those of an expert that gets no tokens: they stay what they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asd.rules.saved import saved_keys, saved_number, wrong_state

__all__ = ["UNCHANGED", "UnchangedOutput"]

UNCHANGED = 2.0**-12
"""Bits by which a feature changes at most from step to step where nothing but weights changes: 0.02 %."""


class UnchangedOutput:
    """Whether an output was the same in its last two steps.

    Each batch has other data, and so has what is computed of it. Where all features stay what they were, what they show
    is the size of a bias, and nothing about the size of what comes as soon as there are data.

    Attributes:
        now: The answer.
        ended: Whether it was yes one step before, and is no.

    >>> idle = UnchangedOutput()
    >>> for bits in (-2.8429, -2.8429, 0.8071):
    ...     idle.update([bits, bits + 6.6, bits - 0.9])
    ...     print(idle.now)
    False
    True
    False
    """

    __slots__ = ("_last", "ended", "now")

    def __init__(self) -> None:
        self._last: tuple[float | None, ...] = ()
        self.now = self.ended = False

    def update(self, x: Sequence[float | None]) -> None:
        """Takes in the logarithms of a value; None of a feature that is 0."""
        before = self.now
        self.now = len(self._last) == len(x) and all(map(_is_unchanged, x, self._last))
        self.ended = before and not self.now
        self._last = tuple(x)

    def state(self) -> dict[str, Any]:
        """What `restore` takes; ready for JSON."""
        return {"last": list(self._last), "now": self.now}

    def restore(self, state: object) -> None:
        """Continues from a saved state.

        Raises:
            StateError: It was not saved by one. This one is then as it was.
        """
        what = "an output without data"
        values = saved_keys(what, state, ("last", "now"))
        last, now = values["last"], values["now"]
        if not isinstance(last, list) or not isinstance(now, bool):
            raise wrong_state(what, "last", last, "logarithms, and a truth value")
        self._last = tuple(None if each is None else saved_number(what, "last", each) for each in last)
        self.now = now


def _is_unchanged(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) < UNCHANGED
