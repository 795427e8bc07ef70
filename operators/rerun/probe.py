"""Known-answer tests between steps, whose answers are exact whatever the order of sums.

The step's number decides which are due. A wrong answer is the device's fault, whatever the training shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np
from mindspore import Parameter

from asd.operators.gate.step_record import Part, StepRecord
from asd.operators.private.cells import without_gradients
from asd.operators.private.layout import local
from asd.operators.rerun.pieces import PIECES, blocks
from asd.operators.rerun.work import DeviceUnderTest, Mismatch, Sizes, Test
from asd.rundir.manifest import Health

EVERY = 3
"""Steps from one turn to the next; no clock, so that ranks with as many weights do the same."""
_ELEMENTS, _FEWEST, _MOST = 1 << 24, 3, 8
"""Weight elements per vector operator of a turn; fewest of them, by which all have their turn within 60 steps; most."""
_MATRIX = 2
_MOST_KEPT = 4  # files of wrong results


class Probe(Part):
    """Known-answer tests of one `StepMonitor`; none runs until `watch` is called.

    Args:
        health: Receives the findings.
    """

    def __init__(self, health: Health) -> None:
        self._health = health
        self._device: DeviceUnderTest | None = None
        self._count = self._kept = self._passed = 0
        self._products: Sequence[Test] = ()
        self._others: Sequence[Test] = ()

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
        self._products = PIECES["products"]
        self._others = [work for works in zip_longest(*kinds) for work in works if work is not None]
        self._count = max(_FEWEST, min(_MOST, sum(map(math.prod, shapes)) // _ELEMENTS))
        words = f"a product and {self._count} of {len(self._others)} vector operators every {EVERY} steps"
        self.monitor.protections.has(probe=f"{words}, products of {sizes.rows} x {sizes.terms} x {sizes.columns}")

    def end_step(self, step: StepRecord) -> None:
        """Runs the tests due after this step, and adds a first-level event of the device if an answer was wrong."""
        if self._device is None:
            return
        turn = step.number // EVERY
        due = [self._others[(turn * self._count + i) % len(self._others)] for i in range(self._count)]
        products = [each for each in self._products if not self._device.lacks(each)]
        due += products[turn % len(products) :][:1] if products else []
        with without_gradients():
            findings = self._device.test(due, turn)
        lacks = [f"not computed here: {name}: {why:.200}" for name, why in self._device.absent.items()]
        self.monitor.protections.lacks("probe", *lacks, told=True)
        self._passed = 0 if findings else self._passed + 1
        if not findings:
            if self._passed % max(len(self._products), -(-len(self._others) // self._count)) == 0:
                self._health.proofs.add("known answers")
            return
        told = "; ".join(f"{each.name}: {each.words}" for each in findings)
        reason = f"known-answer tests failed: {told}{self._keep(step.number, findings)}"
        self.accuse(
            step, self._health, rule="probe", where=f"probe.{findings[0].name}", reason=reason, wrong=len(findings)
        )

    def _keep(self, step: int, findings: Sequence[Mismatch]) -> str:
        """Writes wrong results and their answers into the run folder; returns where, for the reason."""
        if self._kept == _MOST_KEPT:
            return ""
        self._kept += 1
        path = Path(self.monitor.config.run_dir) / f"probe-rank{self.monitor.origin.rank}-step{step}.npz"
        arrays = {f"{each.name}, {kind}": getattr(each, kind) for each in findings for kind in ("found", "expected")}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, **arrays)
        except OSError as error:
            self.monitor.problem(f"wrong results of known-answer tests can't be written: {error.strerror or error}")
            return ""
        return f"; results and answers are in {path.name}"
