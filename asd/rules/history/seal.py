"""The seal of the fourth tier: weights and optimizer state must not change from one step to the next."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import ceil
from typing import Any, NamedTuple

from asd.errors import StateError
from asd.rules.saved import check_count, check_keys
from asd.verdict import Level, Verdict

__all__ = ["BLOCK", "Seal", "Sealed"]

BLOCK = 1 << 16
"""Bytes of a tensor that share a hash."""
LEARNED = 2
"""Comparisons that only show what the program itself writes between its steps."""
MOST = 1 / 64
"""Share of all blocks that a fault changes at most; one block is never too many."""


class Sealed(NamedTuple):
    """One tensor at one moment.

    Attributes:
        place: What changes when the program gives the tensor another value, such as its address and version.
        hashes: Of each block of its bits, or of some of them.
        first: Number of the first of these blocks, from 0.
        every: From one of them to the next.
    """

    place: Hashable
    hashes: tuple[int, ...]
    first: int = 0
    every: int = 1


class Seal:
    """Flags a tensor that changed between two updates although nothing was seen to write it.

    Nothing of a training writes weights or moments there, so a bit that flipped in memory shows, however small the
    value that it made, and so does a tensor that changed as a whole. A program may write them on purpose: it loads a
    checkpoint, averages or clips weights. Such a change is accepted, silently. One is taken for a fault only if all of
    this holds:

    - no tensor has another place than before, and the tensors are the same ones;
    - one tensor changed, and it is not one of those that changed in the first two comparisons, which show what the
      program writes between all of its updates, nor one that was flagged before;
    - something else may have written, such as a compiled graph that ran in between, and it changed in one block or in
      less than 1/64 of the blocks of all tensors; or nothing may have.

    Attributes:
        name: The tensor of the last verdict; empty if there is none.
        accepted: Comparisons whose change was taken for a deliberate one.

    Examples:
        >>> seal, healthy = Seal(), {"w": Sealed(0, (7, 8, 9)), "b": Sealed(0, (5,))}
        >>> for step in range(1, 4):
        ...     verdict = seal.update(step, healthy, healthy)
        >>> seal.update(4, healthy, {**healthy, "w": Sealed(0, (7, 3, 9))}).reason
        'state: w changed between steps 4 and 5, in block 2'
    """

    def __init__(self) -> None:
        self.name = ""
        self.accepted = 0
        self._comparisons = 0
        self._written: set[str] = set()

    def judges(self, name: str) -> bool:
        """Whether a change of this tensor, alone, would be a fault."""
        return self._comparisons >= LEARNED and name not in self._written

    def update(
        self, step: int, after: Mapping[str, Sealed], before: Mapping[str, Sealed], *, traced: bool = True
    ) -> Verdict:
        """Compares what a step left with what is there before the next update.

        Args:
            step: The step that was made.
            after: The tensors at its end, by name.
            before: The same blocks later. Both may be empty where nothing changed.
            traced: Whether something ran in between that may have written them.

        Returns:
            A verdict whose value is the number of blocks that changed.
        """
        self._comparisons += 1
        self.name = ""
        changed = [name for name in before if before[name] != after.get(name)]
        if not changed and before.keys() == after.keys():
            return Verdict(Level.NORMAL, "", 0.0, 0.0)
        changed = [name for name in changed if name not in self._written]
        found = self._fault(changed, after, before, traced=traced)
        if self._comparisons <= LEARNED:
            self._written.update(name for name in changed if name in after and after[name].place == before[name].place)
        if not found:
            self.accepted += 1
            return Verdict(Level.NORMAL, "", 0.0, 0.0)
        name = self.name = changed[0]
        self._written.add(name)
        where = f"in block {before[name].first + found[0] * before[name].every + 1}"
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        reason = f"state: {name} changed between steps {step} and {step + 1}, {where}{more}"
        return Verdict(Level.ERROR, reason, float(len(found)), 0.0)

    def state(self) -> dict[str, Any]:
        """What the program is known to write, and counts, ready for JSON."""
        return {"accepted": self.accepted, "comparisons": self._comparisons, "written": sorted(self._written)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a saved state.

        Raises:
            StateError: It is damaged. The seal is then as it was.
        """
        what = "tier state, seal"
        values = check_keys(what, state, ("accepted", "comparisons", "written"))
        accepted, comparisons = (check_count(what, key, values[key]) for key in ("accepted", "comparisons"))
        written = values["written"]
        if not isinstance(written, list) or not all(isinstance(name, str) for name in written):
            raise StateError(
                f"State of {what}: written has the value {written!r}, which is not valid: a list of names."
            )
        self.accepted, self._comparisons, self._written = accepted, comparisons, set(written)

    def _fault(
        self, changed: list[str], after: Mapping[str, Sealed], before: Mapping[str, Sealed], *, traced: bool
    ) -> list[int]:
        """The blocks that a fault changed; none if the change was made on purpose."""
        if self._comparisons <= LEARNED or len(changed) != 1 or before.keys() != after.keys():
            return []
        old, new = after[changed[0]], before[changed[0]]
        moved = any(after[name].place != before[name].place for name in before)
        if moved or len(old.hashes) != len(new.hashes):
            return []
        blocks = [i for i, pair in enumerate(zip(old.hashes, new.hashes, strict=True)) if pair[0] != pair[1]]
        total = sum(len(sealed.hashes) for sealed in before.values())
        return blocks if not traced or len(blocks) <= max(1, ceil(MOST * total) - 1) else []
