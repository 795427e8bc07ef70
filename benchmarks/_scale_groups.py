"""What the ranks of a job with tensor, pipeline and data parallel tell one another: bytes and host time for one rank.

Collectives are simulated, that is all: what a rank sends, unpacks, judges and decides is the code of a training. The
other ranks' messages are made by that code too.
"""

import json
import random
import statistics as stats
import time
from collections.abc import Callable, Sequence
from typing import Any

from asd.diagnosis.attribution import Seen
from asd.diagnosis.flow import RankReport
from asd.diagnosis.groups import Groups, Shard
from asd.rules.reading import GRADIENT, WEIGHT_GRADIENT, Reading

TENSOR, STAGES = 8, 16
DATA = (2, 5, 10, 20, 40, 80)
CHECKPOINTS = 200
"""Of one rank: layers of one stage of sixteen."""
_TOLD = ("hash", "refused")
EVERY = 16
"""Steps between two comparisons of weights, as the option `weight_hash`."""


def shards(data: int) -> list[Shard]:
    """Of every rank: tensor parallel within, then data parallel, pipeline outside."""
    return [
        Shard(stage, str(part), -1, (f"stage {stage}, all: {part}", f"stage {stage}, norm: whole"))
        for stage in range(STAGES)
        for _ in range(data)
        for part in range(TENSOR)
    ]


class Ranks:
    """An exchange whose collectives cost nothing: the others have said what `others` gives.

    Args:
        rank: Of this process.
        size: Number of ranks.
        groups: Which ranks hold the same.
        others: What they answer to a message of this rank, by rank; the same if not given.
        bytes_each: That go over the wire for each byte: two among some of the ranks, see `Exchange`.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        groups: Groups,
        others: Callable[[bytes], list[bytes]] | None = None,
        bytes_each: int = 1,
    ) -> None:
        self.rank, self.size, self.groups, self.near = rank, size, groups, self
        self._bytes_each = bytes_each
        self.others = others
        self.sent = 0

    def gather(self, message: bytes, size: int | None = None) -> list[bytes]:
        """Every rank's message."""
        told = self.others(message) if self.others is not None else [message] * self.size
        if size is None:
            self.sent += 4 * self.size * self._bytes_each
        self.sent += self._bytes_each * self.size * 4 * -(-max(map(len, told)) // 4)
        return told

    def tell(self, **words: Any) -> list[dict[str, Any]]:
        """What every rank has to say."""
        return [json.loads(message) for message in self.gather(json.dumps(words).encode())]


def readings(rank: int) -> list[Reading]:
    """What a healthy rank saw."""
    source = random.Random(rank)
    found = []
    for order in range(CHECKPOINTS):
        size = 0.01 * 2.0 ** source.gauss(0.0, 0.3)
        kind = (GRADIENT, WEIGHT_GRADIENT)[order % 2]
        found.append(Reading(f"layers.{order}", size, order, kind))
    return found


def _timed(repeats: int, call: Callable[[], Any]) -> float:
    """Milliseconds of processor time, the median."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        call()
        times.append(1e3 * (time.process_time() - began))
    return stats.median(times)


def job(data: int, repeats: int) -> dict[str, Any]:
    """The figures of a job with `data` replicas."""
    from asd.operators.ranks.attribution import attribution_of
    from asd.operators.ranks.weights import WeightComparison

    held = shards(data)
    size, rank = len(held), len(held) // 3
    began = time.process_time()
    groups = Groups(held, rank, "simulated")
    assert groups.holders
    start = 1e3 * (time.process_time() - began)
    near = len(groups.members)
    own = groups.members.index(rank)

    mine = readings(rank)

    # Every so many steps: hashes of weights. Hashing them is the same however many ranks there are.
    world = Ranks(rank, size, groups)
    comparison = WeightComparison((), world, EVERY)  # type: ignore[arg-type]
    hash_ms = _timed(repeats, lambda: comparison.after(EVERY))
    hash_bytes = world.sent // repeats

    # A refused step: whose fault it was. One rank broke its limits, and in its replica all stages that come after it in
    # the backward pass.
    dragged = {each for each in groups.replicas[groups.replica_of(rank)] if held[each].stage < held[rank].stage}
    word = json.dumps(RankReport("layers.9", 9, 12.0, wrong=40)).encode()
    spoken = [word if each in dragged else b"" for each in range(size)]
    broken = {each.checkpoint: Seen(each.order, each.value * 1e9, broken=True) for each in mine}
    refused = Ranks(rank, size, groups)
    refused.others = lambda message: [message if each == rank else spoken[each] for each in range(size)]
    refused.near = Ranks(own, near, groups, None, 2)
    calm = _calm(groups.members)
    refused.near.others = lambda message: [message if i == own else each for i, each in enumerate(calm)]
    found = attribution_of(refused, broken, {})  # type: ignore[arg-type]
    if found is None or found.origin != rank:
        raise AssertionError(f"{size} ranks: {found}")
    refused.sent = refused.near.sent = 0
    blame_ms = _timed(repeats, lambda: attribution_of(refused, broken, {}))  # type: ignore[arg-type]
    blame_bytes = (refused.sent + refused.near.sent) // repeats
    return {
        "tensor": TENSOR,
        "stages": STAGES,
        "data": data,
        "ranks": size,
        "start_ms": start,
        "hash_bytes": hash_bytes,
        "hash_ms": hash_ms,
        "refused_bytes": blame_bytes,
        "refused_ms": blame_ms,
    }


def _calm(members: Sequence[int]) -> list[bytes]:
    from asd.diagnosis.attribution import pack_seen

    found = []
    for member in members:
        seen = {each.checkpoint: Seen(each.order, each.value, broken=False) for each in readings(member)}
        first = pack_seen(seen)
        found.append(len(first).to_bytes(4, "little") + first + pack_seen({}))
    return found


def curve(repeats: int, data: Sequence[int] = DATA) -> list[dict[str, Any]]:
    """The figures of jobs of more and more replicas; prints them."""
    rows = []
    for each in data:
        row = job(each, repeats)
        rows.append(row)
        told = [f"{row[f'{name}_bytes'] / 1024:7.1f} KiB, {row[f'{name}_ms']:6.1f} ms" for name in _TOLD]
        print(f"  {row['ranks']:>6} ranks (x {each}): weights {told[0]}; a refused step {told[1]}")
    return rows
