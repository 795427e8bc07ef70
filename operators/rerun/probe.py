"""Known-answer tests between steps, whose answers are exact whatever the order of sums.

A wrong answer is the device's fault, whatever the training shows. No rank waits for another one's tests.
"""

import math
import time
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest

from mindspore import Parameter

from asd.operators.gate.step_record import Part, StepRecord
from asd.operators.private.cells import without_gradients
from asd.operators.private.layout import local
from asd.operators.rerun.pieces import PIECES, blocks
from asd.operators.rerun.work import DeviceUnderTest, Sizes, Test
from asd.rundir.manifest import Health

EVERY, _RAREST, SHARE = 3, 24, 0.02
"""Steps from one turn to the next, doubled while turns take more than that share of the fastest steps' time: so ranks
meet at some. The first share is of all the time since the start, in which a graph is compiled."""
_ELEMENTS, _FEWEST, _MOST = 1 << 24, 3, 8
"""Weight elements per vector operator of a turn; fewest of them, by which all have their turn within 60 steps; most."""
_MATRIX = 2


class Probe(Part):
    """Known-answer tests of one `StepMonitor`; none runs until `watch` is called.

    Args:
        health: Receives the findings.
    """

    def __init__(self, health: Health) -> None:
        self._health = health
        self._device: DeviceUnderTest | None = None
        self._passed = 0

    def watch(self, weights: Sequence[Parameter]) -> None:
        """Starts known-answer tests in sizes that fit `weights`, those of at least two dimensions."""
        shapes = [tuple(local(each).shape) for each in weights if each.ndim > 1 and local(each).size > 0]
        self._device = None
        self.monitor.protections.has(probe="")
        if not shapes:
            return
        sizes = Sizes.of(shapes)
        self._device = DeviceUnderTest(sizes, blocks())
        skipped = {"products"} if any(len(shape) > _MATRIX for shape in shapes) else {"products", "convolutions"}
        kinds = [works for kind, works in PIECES.items() if kind not in skipped]
        self._others: list[Test] = [work for works in zip_longest(*kinds) for work in works if work is not None]
        self._count = max(_FEWEST, min(_MOST, sum(map(math.prod, shapes)) // _ELEMENTS))
        self._interval, self._runs = EVERY, Counter[str]()
        self._ended, self._step, self._pace, self._credit = time.perf_counter(), 0, math.inf, 0.0
        words = f"a product and {self._count} of {len(self._others)} vector operators every {EVERY} to {_RAREST} steps"
        alone = "; a fault at one place of the network shows by its size alone" if self.ranks.size == 1 else ""
        words += f", products of {sizes.rows} x {sizes.terms} x {sizes.columns}{alone}"
        self.monitor.protections.has(probe=words)

    def end_step(self, step: StepRecord) -> None:
        """Runs the tests due after this step, and adds a first-level event of the device if an answer was wrong."""
        device = self._device
        if device is None or step.number // self._interval <= self._step // self._interval:
            return
        begin, steps = time.perf_counter(), max(1, min(step.number - self._step, self._interval))
        self._pace, self._step = min(self._pace, (begin - self._ended) / steps), step.number
        due = self._due(device, PIECES["products"], 1) + self._due(device, self._others, self._count)
        with without_gradients():
            findings = device.test(due, max((self._runs[each.name] for each in due), default=0))
        self._runs.update(each.name for each in due)
        self._ended = time.perf_counter()
        self._credit += SHARE * self._pace * steps - (self._ended - begin)
        self._interval = max(self._interval // 2, EVERY) if self._credit >= 0 else min(2 * self._interval, _RAREST)
        lacks = [f"not computed here: {name}: {why:.200}" for name, why in device.absent.items()]
        self.monitor.protections.lacks("probe", *lacks, told=True)
        self._passed = 0 if findings else self._passed + len(due)
        if not findings:
            if self._passed >= len(PIECES["products"]) + len(self._others):  # a round
                self._health.proofs.add("known answers")
                self._passed = 0
            return
        reason = "known-answer tests failed: " + "; ".join(f"{each.name}: {each.words}" for each in findings)
        where = f"probe.{findings[0].name}"
        self.accuse(step, self._health, rule="probe", where=where, reason=reason, wrong=len(findings))

    def _due(self, device: DeviceUnderTest, tests: Sequence[Test], count: int) -> list[Test]:
        """Returns those of `tests` that ran least; where time is short one whose operator is loaded already."""
        runs, few = self._runs, self._interval > EVERY
        ready = [each for each in tests if not device.lacks(each) and (runs[each.name] or not few)]
        return sorted(ready, key=lambda test: runs[test.name])[: 1 if few else count]
