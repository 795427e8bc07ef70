"""One rank of the self-test of several, the last of which computes wrongly: `msrun ranks.py MODE DEVICE`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.communication import create_group, get_group_size, get_rank, init
from mindspore.ops import operations as P  # noqa: N812

from asd.config import Config
from asd.event import Event
from asd.operators.ranks.exchange import Exchange
from asd.operators.ranks.weights import hashes_of, total_of
from asd.operators.selftest.outcome import Report, expect, expect_bits, expect_near
from asd.operators.selftest.repeating import Net, batch_of, fill, state_of
from asd.operators.start.enable import disable
from asd.operators.start.step_monitor import StepMonitor

__all__ = ["main"]

_STEPS, _ONCE, _ALWAYS = 7, 3, 5


class _Scaled(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.net = fill(Net())

    def construct(self, x, y, scale):
        return self.net(x, y) * scale


class _Training:
    """The steps of this rank; without `struck` those that go wrong are left out."""

    def __init__(self, rank: int, bad: int, *, struck: bool) -> None:
        net = _Scaled()
        optimizer = nn.Adam(net.trainable_params(), 1e-3)
        cell = nn.TrainOneStepCell(net, optimizer).set_train()
        self.events: list[Event] = []
        config = Config(protection="document", enable=int(struck), on_anomaly="skip", upper=(1000, 100), replay=struck)
        monitor = StepMonitor(config, sinks=[self.events.append])
        monitor.attach(cell, optimizer)
        once: list[float] = []
        always: list[float] = []

        def run(x, y):
            scale = once.pop() if once else always[0] if always else 1.0
            return cell(x, y, Tensor(scale, ms.float32))

        step = monitor.watch_step(run)
        for number in range(1, _STEPS + 1):
            if not struck and number in (_ONCE, _ALWAYS):
                continue
            if struck and rank == bad:
                once[:] = [1e7] if number == _ONCE else []
                always[:] = [1e7] if number == _ALWAYS else []
            x, y = batch_of(number, rank)
            loss = step(Tensor(x), Tensor(y))
            monitor.step(loss)
            loss.asnumpy()
        self.state = state_of(net, optimizer)
        monitor.close()


def main(words: Sequence[str]) -> int:
    """Tells what every check came to.

    Args:
        words: Mode and kind of device.
    """
    mode, device = words
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    ms.set_device(device)
    init()
    disable()  # importing the package puts checks on all that trains
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    rank, size = get_rank(), get_group_size()
    report, bad = Report(mode, rank), size - 1
    report.check("ranks", "collectives of all", _collectives, rank, size)
    report.check("ranks", "groups", _groups, rank, size)
    unchecked, struck = _Training(rank, bad, struck=False), _Training(rank, bad, struck=True)
    report.check("ranks", "all refuse together", _refused, struck)
    report.check("ranks", "weights and moments as without the fault", _same, struck, unchecked)
    report.check("ranks", "weights alike on all ranks", _alike, struck)
    report.check("ranks", "attribution to the rank at fault", _named, struck, rank, bad)
    report.check("ranks", "verdicts of the replay", _judged, struck, rank, bad)
    return 0


def _collectives(rank: int, size: int) -> None:
    mine = np.arange(4, dtype=np.float32) + 100 * rank
    expect_near("AllReduce", P.AllReduce()(Tensor(mine)).asnumpy(), np.arange(4) * size + 50 * size * (size - 1))
    rows = Exchange().gather(mine.tobytes())
    expect_bits(
        "what each rank said",
        [np.frombuffer(row, np.float32) for row in rows],
        [np.arange(4, dtype=np.float32) + 100 * i for i in range(size)],
    )


def _groups(rank: int, size: int) -> None:
    """Two halves, the even and the odd ranks; both are made by all, as MindSpore wants it."""
    for odd in (0, 1):
        members = list(range(odd, size, 2))
        name = f"asd_selftest_{odd}"
        if rank in members and len(members) > 1:
            create_group(name, members)
            found = P.AllReduce("sum", name)(Tensor(np.array([rank + 1], np.float32))).asnumpy()
            expect_near(f"the sum over ranks {members}", found, [sum(i + 1 for i in members)])


def _refused(struck: _Training) -> None:
    steps = sorted({event.step for event in struck.events if event.refused})
    expect(steps == [_ONCE, _ALWAYS], f"the updates of steps {steps} were refused, not of {[_ONCE, _ALWAYS]}")


def _same(struck: _Training, unchecked: _Training) -> None:
    expect_bits("weights and moments, and those without checks and bad steps", struck.state, unchecked.state)


def _alike(struck: _Training) -> None:
    total = total_of(hashes_of(map(Tensor, struck.state)))
    told = [each["total"] for each in Exchange().tell(total=str(total))]
    expect(len(set(told)) == 1, f"the hashes of weights and moments by rank are {', '.join(told)}")


def _named(struck: _Training, rank: int, bad: int) -> None:
    told = sorted({(event.step, event.kind) for event in struck.events if event.kind in ("anomaly", "follower")})
    kind = "anomaly" if rank == bad else "follower"
    expected = [(_ONCE, kind), (_ALWAYS, kind)]
    expect(told == expected, f"rank {bad} is at fault, so rank {rank} should tell {expected}, and tells {told}")


def _judged(struck: _Training, rank: int, bad: int) -> None:
    if rank != bad:
        return
    told = [(event.step, event.verdict) for event in struck.events if event.kind == "replay"]
    expected = [(_ONCE, "transient"), (_ALWAYS, "persistent")]
    expect(told == expected, f"the verdicts should be {expected}, and are {told}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
