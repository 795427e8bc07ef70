"""Known-answer tests between steps: each runs twice, and is compared with its own bits and with float64.

The step's number decides which are due. A wrong answer is the device's fault, whatever the training shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.gate.step_record import Part, StepRecord
from asd.operators.private.cells import without_gradients
from asd.operators.private.layout import local
from asd.operators.rerun.pieces import PIECES
from asd.operators.rerun.work import SHAPE, Work, operands_of
from asd.rundir.manifest import Health

EVERY = 3
"""Steps from one turn to the next; no clock, so that ranks with as many weights do the same."""
_ELEMENTS, _MOST = 1 << 20, 16
"""Weight elements per test of a turn; most tests of a turn: 32 launches, 0.1 % of a step of a 7B model."""
_TURNS = 8  # that have the same operands
_MOST_KEPT = 4  # files of operands and results
_FLAT = P.Reshape()


class Probe(Part):
    """Known-answer tests of one `StepMonitor`; none runs until `watch` is called.

    Args:
        health: Receives the findings.
    """

    def __init__(self, health: Health) -> None:
        self._health = health
        self._weights: list[Parameter] = []
        self._works: list[Work] = []
        self._operands: Mapping[str, Any] = {}
        self._count = self._kept = 0
        self._known: dict[str, bool] = {}

    def watch(self, weights: Sequence[Parameter]) -> None:
        """Starts known-answer tests on slices of `weights`, those of at least two dimensions."""
        self._weights = [each for each in weights if each.ndim > 1 and local(each).size > 0]
        self._works = [work for works in zip_longest(*PIECES.values()) for work in works if work is not None]
        self._count = max(1, min(_MOST, sum(local(each).size for each in self._weights) // _ELEMENTS))
        words = f"{self._count} of {len(self._works)} pieces of known work every {EVERY} steps, each made twice"
        self.monitor.protections.has(probe=words if self._weights else "")

    def end_step(self, step: StepRecord) -> None:
        """Runs the tests due after this step, and adds a first-level event of the device if an answer was wrong."""
        if not self._weights:
            return
        turn = step.number // EVERY
        works = [self._works[(turn * self._count + i) % len(self._works)] for i in range(self._count)]
        with without_gradients():
            if not self._operands or turn % _TURNS == 0:
                weight = local(self._weights[turn // _TURNS % len(self._weights)])
                self._operands = operands_of(_FLAT(weight, (-1,))[: SHAPE[0] * SHAPE[1]].float().asnumpy(), turn)
            operands = self._operands
            works = [work for work in works if self._can(work, operands)]
            firsts = [_result(work, operands) for work in works]
            seconds = [_result(work, operands) for work in works[::-1]][::-1]
        outputs = list(zip(firsts, seconds, strict=True))
        wrong = {}
        for work, both in zip(works, outputs, strict=True):
            if words := work.fault(*both, [operands[each] for each in work.operands]):
                wrong[work.name] = words
        if not wrong:
            return
        kept = self._keep(step.number, operands, works, outputs)
        told = "; ".join(f"{name}: {words}" for name, words in wrong.items())
        reason = f"known work came out wrong: {told}{kept}"
        where = f"probe.{next(iter(wrong))}"
        self.accuse(step, self._health, rule="probe", where=where, reason=reason, wrong=len(wrong))

    def _can(self, work: Work, operands: Mapping[str, Any]) -> bool:
        """Returns whether the device computes the operator as precisely as expected; tried once per operator."""
        if work.name not in self._known:
            lacks = ""
            try:
                if work.is_coarse(_result(work, operands), [operands[each] for each in work.operands]):
                    lacks = "is computed less precisely here, and not tested"
            except Exception as error:  # of any kind, as an operator or MindSpore's queue of them raises it
                lacks = f"is not computed here: {error!r:.200}"
            self._known[work.name] = not lacks
            self.monitor.protections.lacks("probe", *([f"{work.name} {lacks}"] if lacks else []), told=True)
        return self._known[work.name]

    def _keep(self, step: int, operands: Mapping[str, Any], works: Sequence[Work], outputs: Sequence[Any]) -> str:
        """Writes operands and results into the run folder, to be recomputed anywhere; returns where, for the reason."""
        if self._kept == _MOST_KEPT:
            return ""
        self._kept += 1
        path = Path(self.monitor.config.run_dir) / f"probe-rank{self.monitor.origin.rank}-step{step}.npz"
        results = {
            f"{work.name}, {time}": each
            for work, both in zip(works, outputs, strict=True)
            for time, each in enumerate(both, 1)
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, **dict(operands), **results)
        except OSError as error:
            self.monitor.problem(f"operands and results of known work can't be written: {error.strerror or error}")
            return ""
        return f"; operands and results are in {path.name}"


def _result(work: Work, operands: Mapping[str, Any]) -> np.ndarray:
    found: np.ndarray = work.compute(*(Tensor(operands[each]) for each in work.operands)).asnumpy()
    return found
