"""Replica groups: ranks that can be compared, have the same weights, and can re-run one another's steps."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from asd.errors import and_more


class Shard(NamedTuple):
    """Shard of the network on one rank."""

    stage: int = 0  # stage of a pipeline, from 0; data flow from lower to higher stages
    part: str = ""  # name of its part of the stage's layers; any text
    # index among the ranks with the same stage and part, from 0: ranks with the same index work on the same batch. -1:
    # by the order of ranks
    replica: int = -1
    # labels of its weights, one for each set with the same ranks. Empty where weights are not compared
    labels: tuple[str, ...] = ()


class Groups:
    """Replica groups of a job; the same on all ranks except for `rank`.

    Args:
        shards: Shard of each rank, by rank.
        rank: This one.
        source: Source of this knowledge, as text.
        label_of: Returns the label of one of this rank's weights, or of a checkpoint, by its name; the first label of
            this rank if not given.

    Attributes:
        rank: This one.
        source: Source of this knowledge, as text.
        members: Ranks of this rank's replica group, in the order of their replicas.
        stages: Stage by rank.
        replicas: Ranks that make one step together, by replica, each ordered by stage and part. Empty where the groups
            differ in size: then no rank can re-run the step of another.

    >>> shards = [Shard(part="0"), Shard(part="1"), Shard(part="0"), Shard(part="1")]
    >>> groups = Groups(shards, 3, "told")
    >>> groups.members, groups.replicas
    ((1, 3), ((0, 1), (2, 3)))
    """

    def __init__(
        self, shards: Sequence[Shard], rank: int, source: str, label_of: Callable[[str], str] | None = None
    ) -> None:
        self.rank, self.source = rank, source
        self.stages = tuple(shard.stage for shard in shards)
        self._own = own = shards[rank]
        self.label_of = label_of or (lambda _: own.labels[0] if own.labels else "")
        self.labels = tuple(shard.labels for shard in shards)
        found: dict[tuple[int, str], list[int]] = {}
        for each, shard in enumerate(shards):
            found.setdefault((shard.stage, shard.part), []).append(each)
        for ranks in found.values():
            ranks.sort(key=lambda each: (shards[each].replica, each))
        self._found = found
        self.members = tuple(found[own.stage, own.part])
        self._alike = {each: ranks for ranks in map(tuple, found.values()) for each in ranks}
        held = [found[key] for key in sorted(found)]
        self.replicas = tuple(zip(*held, strict=True)) if len({len(ranks) for ranks in held}) == 1 else ()
        self._holders: dict[str, tuple[int, ...]] | None = None
        self._places = {each: place for place, ranks in enumerate(self.replicas) for each in ranks}
        self._apart: dict[str, bool] = {}

    @property
    def size(self) -> int:
        """Returns the number of ranks."""
        return len(self.stages)

    @property
    def whole(self) -> bool:
        """Returns whether all ranks are one replica group."""
        return len(self._found) == 1

    @property
    def holders(self) -> dict[str, tuple[int, ...]]:
        """Returns by label of weights the ranks that hold them; labels of a single rank are left out."""
        if self._holders is None:
            found: dict[str, list[int]] = {}
            for rank, labels in enumerate(self.labels):
                for label in labels:
                    found.setdefault(label, []).append(rank)
            self._holders = {label: tuple(ranks) for label, ranks in found.items() if len(ranks) > 1}
        return self._holders

    def total_of(self, totals: Sequence[int], rank: int, label: str) -> int:
        """Returns the total of a rank's weights with one label, from `totals` in the order of its labels."""
        return totals[self.labels[rank].index(label)]

    def alike(self, rank: int) -> tuple[int, ...]:
        """Returns the replica group of `rank`."""
        return self._alike[rank]

    def replica_of(self, rank: int) -> int:
        """Returns the index in `replicas` of a rank."""
        return self._places[rank]

    def is_apart(self, name: str) -> bool:
        """Returns whether a checkpoint differs within this replica group, as an expert on one rank."""
        if name not in self._apart:
            label = self.label_of(name.removeprefix("averaged."))
            holders = self.holders.get(label, (self.rank,)) if label else self.members
            self._apart[name] = not set(self.members) <= set(holders)
        return self._apart[name]

    @property
    def words(self) -> str:
        """Returns the shard of this rank, its replica group and the source, as text; empty with one rank."""
        if self.size == 1:
            return ""
        others = [rank for rank in self.members if rank != self.rank]
        with_whom = f"same as {named(others)}" if others else "alone"
        if self.whole:
            return f"this rank holds the whole network, {with_whom}: {self.source}"
        stages = f"stage {self._own.stage} of {max(self.stages) + 1}, " if max(self.stages) else ""
        part = f"shard {self._own.part}, " if self._own.part else ""
        return f"this rank holds {stages}{part}{with_whom}: {self.source}"


def everybody(size: int, rank: int, source: str, label_of: Callable[[str], str] | None = None) -> Groups:
    """Returns the groups of ranks that all hold the same."""
    return Groups([Shard(labels=("all",))] * size, rank, source, label_of)


def named(ranks: Sequence[int]) -> str:
    """Returns the first of some ranks, as text."""
    return ("rank " if len(ranks) == 1 else "ranks ") + and_more(ranks, 6)
