"""The table's cells: what holds for a kind in a mode, a precision and a configuration."""

from __future__ import annotations

import logging
import tempfile
import traceback
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from kinds import KINDS
from trainings import BAD, STEPS, Fault, State, Training

from asd import Config, Event, Level
from asd.operators import StepMonitor
from asd.operators.product_check import schedule

CONFIGURATIONS = {
    "document": {},
    "adaptive": {"ASD_RULE": "adaptive", "ASD_ON_ANOMALY": "skip"},
    "everything": {
        "ASD_RULE": "adaptive", "ASD_TIERS": "finite,adaptive,state,checksum", "ASD_CONFIRM": "0.5",
        "ASD_ON_ANOMALY": "skip", "ASD_REPLAY": "1",
    },
}  # fmt: skip
"""Beside NPU_ASD_ENABLE=1; by name."""
WITH_GRADIENTS = ("loop", "clipping", "accumulation")  # styles in which a weight's gradient can be struck
_STATISTICS = ("moving_mean", "moving_variance")  # a refused step has counted its batch there


class _Log(logging.Handler):
    """Everything that the package says in words."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Watched(Training):
    """A training with monitors, and what they said.

    Attributes:
        events: Of each monitor.
        log: Lines of the log.
        products: How many products were checked.
    """

    def __init__(self, kind: str, precision: str, environ: dict[str, str], fault: Fault | None = None) -> None:
        self.events: list[list[Event]] = []
        logger, log = logging.getLogger("asd"), _Log()
        level, propagate = logger.level, logger.propagate
        logger.addHandler(log)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        self.log, checked = log.lines, schedule().checked
        with tempfile.TemporaryDirectory() as folder:
            config = Config.from_env({"NPU_ASD_ENABLE": "1", "ASD_RUN_DIR": folder, **environ})

            def monitor(scale: Any) -> StepMonitor:
                self.events.append([])
                return StepMonitor(config, sinks=[self.events[-1].append], loss_scale=scale)

            try:
                super().__init__(kind, precision, monitor, fault)
            finally:
                logger.removeHandler(log)
                logger.setLevel(level)
                logger.propagate = propagate
        self.products = schedule().checked - checked

    def of(self, level: Level, monitor: int | None = None) -> list[Event]:
        """The anomalies of a level, of all monitors or one."""
        chosen = self.events if monitor is None else [self.events[monitor]]
        return [each for events in chosen for each in events if each.kind == "anomaly" and each.level is level]

    @property
    def problems(self) -> list[str]:
        """What a monitor said that it could not do."""
        return [each.reason for events in self.events for each in events if each.kind == "problem"]

    @property
    def status(self) -> list[Any]:
        """Of each monitor that was attached."""
        return [each.monitor.status for each in self.monitors if each.monitor is not None]

    def says(self, *words: str) -> bool:
        """Whether a problem or a line of the log has one of these words."""
        told = " ".join([*self.problems, *self.log]).lower()
        return any(word in told for word in words)


def fault_of(kind: str, mode: str, precision: str, configuration: str, seed: int) -> Fault:
    """The fault of a cell, chosen by a seed.

    The document's rule looks at gradients of activations only, and at what is enormous. Under a dynamic loss scale an
    overflow is no fault: there a forward output is struck, by as much as float16 can hold.
    """
    name = f"{kind}-{mode}-{precision}-{configuration}-{seed}"
    random = np.random.default_rng(zlib.crc32(name.encode()))
    if configuration == "document":
        return Fault("gradient", 10 ** random.uniform(20, 30), 0)
    which = int(random.integers(1 << 30))
    if precision == "dynamic" and kind != "gan":
        return Fault("output", 10 ** random.uniform(2.7, 3.5), which)
    targets = ["gradient", "output"] + ["weight gradient"] * (KINDS[kind].style in WITH_GRADIENTS)
    return Fault(str(random.choice(targets)), 10 ** random.uniform(8, 30), which)


def differing(one: State, other: State, *, statistics: bool = True) -> list[str]:
    """Names of what is not the same in both."""
    names = [name for name in one if statistics or not name.endswith(_STATISTICS)]
    return [name for name in names if one[name] != other.get(name)]


class Plain:
    """The same training without detection: one, and up to two more while a watched one is equal to none of them.

    MindSpore's first training of a process may end otherwise than all later ones, and some are never alike.
    """

    def __init__(self, kind: str, precision: str) -> None:
        self._what = kind, precision
        self.all = [Training(kind, precision)]

    @property
    def repeatable(self) -> bool:
        """Whether all of them are alike."""
        return all(is_same(self.all[0], each) for each in self.all)

    def like(self, watched: Training) -> bool:
        """Whether one of them is `watched`, bit for bit."""
        while not any(is_same(each, watched) for each in self.all):
            if len(self.all) == 3:
                return False
            self.all.append(Training(*self._what))
        return True


def is_same(one: Training, other: Training) -> bool:
    """Whether losses, weights and optimizers are equal bit for bit."""
    return one.losses == other.losses and not differing(one.after, other.after)


def judge_healthy(cell: dict[str, Any], plain: Plain, healthy: Watched, configuration: str) -> list[str]:
    """What is wrong with a training that had no fault."""
    wrong = []
    cell["equal"] = plain.like(healthy)
    if not cell["equal"] and plain.repeatable:
        one = plain.all[0]
        differ = differing(one.after, healthy.after)
        steps = [i + 1 for i, pair in enumerate(zip(one.losses, healthy.losses, strict=False)) if pair[0] != pair[1]]
        since = f"losses from step {steps[0]} on" if steps else "losses are equal"
        wrong.append(f"not equal: {len(differ)} of {len(one.after)} tensors, such as {differ[:1]}; {since}")
    elif not cell["equal"]:
        cell |= {"equal": None, "note": "plain MindSpore does not repeat itself"}
    first, second = healthy.of(Level.ERROR), healthy.of(Level.WARNING)
    cell |= {"first_level": len(first), "second_level": len(second)}
    status = healthy.status
    cell["refused"], cell["checks"] = sum(each.refused for each in status), sum(each.checks for each in status)
    cell["places"], cell["products"] = sum(len(each.checkpoints) for each in status), healthy.products
    if first:
        wrong.append(f"{len(first)} false first-level alarms, such as {_of_event(first[0])}")
    if cell["refused"]:
        wrong.append(f"{cell['refused']} healthy updates refused")
    if len(healthy.losses) != STEPS or any(each.steps != STEPS for each in status):
        wrong.append(f"{[each.steps for each in status]} steps judged, {len(healthy.losses)} made of {STEPS}")
    return wrong + judge_coverage(cell, healthy, configuration)


def judge_coverage(cell: dict[str, Any], healthy: Watched, configuration: str) -> list[str]:
    """Whether what does nothing says so."""
    wrong = []
    cell["problems"] = sorted(set(healthy.problems))
    for each in healthy.status:
        if not each.checkpoints and not healthy.says("nothing to check", "nothing is checked", "no checkpoint"):
            wrong.append("no place is checked, and nothing says so")
    if any("not judged" in each for each in healthy.problems):
        wrong.append(f"a step was not judged: {healthy.problems[0]}")
    if configuration == "everything" and not healthy.products and not healthy.says("product", "checksum"):
        wrong.append("no product is checked, and nothing says so")
    return wrong


def judge_struck(cell: dict[str, Any], plain: Plain, struck: Watched, configuration: str) -> list[str]:
    """What is wrong with a training that had a fault in step `BAD`."""
    fault = struck.fault
    cell["fault"] = str(fault)
    if not cell["places"]:
        cell["found"] = cell["healed"] = None  # nothing is checked, and that was said or is wrong already
        return []
    if not fault.strike.told:
        return ["the fault never struck"]
    first = struck.of(Level.ERROR, 0)
    wrong = [f"alarm in step {each.step}: {_of_event(each)}" for each in first if each.step != BAD][:1]
    cell["found"] = any(each.step == BAD for each in first)
    if cell["precision"] == "dynamic" and not cell["found"]:
        overflow = [each for each in struck.of(Level.WARNING, 0) if each.step == BAD and "overflow" in each.reason]
        if overflow:
            cell |= {"found": "overflow", "healed": None}
            return wrong
    if not cell["found"]:
        warned = sum(each.step == BAD for each in struck.of(Level.WARNING, 0))
        return [*wrong, f"not found in its step, with {warned} warnings"]
    if others := struck.of(Level.ERROR)[len(first) :]:
        wrong.append(f"the other monitor is blamed: {_of_event(others[0])}")
    judges = {"document": _judge_stopped, "adaptive": _judge_refused, "everything": _judge_healed}
    return wrong + judges[configuration](cell, plain, struck)


def _judge_stopped(cell: dict[str, Any], plain: Plain, struck: Watched) -> list[str]:
    cell["healed"] = None
    if struck.ended_by is None or struck.ended_by.event.step != BAD:
        return ["the training was not ended in the fault's step"]
    return _judge_refusal(cell, plain, struck.after)


def _judge_refused(cell: dict[str, Any], plain: Plain, struck: Watched) -> list[str]:
    cell["healed"] = None
    return _judge_refusal(cell, plain, struck.behind) + _judge_gone_on(struck)


def _judge_refusal(cell: dict[str, Any], plain: Plain, found: State) -> list[str]:
    """Whether the fault's step left everything as it was."""
    mine = [{name: value for name, value in each.before.items() if name[0] in "01"} for each in plain.all]
    differ = min((differing(each, found, statistics=False) for each in mine), key=len)
    if not differ or cell["equal"] is None:
        return []
    return [f"the update was not refused: {len(differ)} tensors differ, such as {differ[:1]}"]


def _judge_gone_on(struck: Watched) -> list[str]:
    wrong = [f"{len(struck.losses)} steps of {STEPS}"] if len(struck.losses) != STEPS else []
    refused = [each.refused for each in struck.status]
    return wrong + ([f"{refused} updates refused where one was bad"] if refused != [1, 0][: len(refused)] else [])


def _judge_healed(cell: dict[str, Any], plain: Plain, struck: Watched) -> list[str]:
    cell["healed"] = any(is_same(each, struck) for each in plain.all)
    if cell["healed"]:
        return []
    if cell["equal"] is not True:
        cell["healed"] = None
        return []
    if struck.says("made again", "second look", "asd_confirm"):
        cell["healed"] = "no, and it is said"
        return _judge_refusal(cell, plain, struck.behind) + _judge_gone_on(struck)
    return ["not healed, and nothing says why", *_judge_gone_on(struck)]


def _of_event(event: Event) -> str:
    limits = ", ".join(f"{each:.3g}" for each in event.limits)
    return f"step {event.step}, {event.checkpoint}: {event.reason} ({event.value:.3g}, limits {limits})"


def run_group(kind: str, mode: str, precision: str, seed: int, configurations: Sequence[str]) -> list[dict[str, Any]]:
    """The cells of some configurations; MindSpore is in `mode` already."""
    name = {"kind": kind, "mode": mode, "precision": precision}
    cells: list[dict[str, Any]] = []
    try:
        plain = Plain(kind, precision)
    except Exception as error:  # whatever MindSpore can't do
        note = f"plain MindSpore fails: {first_line(error)}"
        return [{**name, "configuration": each, "failures": [], "note": note} for each in configurations]
    finite = all(np.isfinite(np.frombuffer(each, np.float32)).all() for each in plain.all[0].losses)
    for configuration in configurations:
        environ = CONFIGURATIONS[configuration]
        cell: dict[str, Any] = {**name, "configuration": configuration, "note": "", "failures": []}
        cells.append(cell)
        if not finite:
            cell["note"] = "plain MindSpore's loss is not finite"
        try:
            cell["failures"] += judge_healthy(cell, plain, Watched(kind, precision, environ), configuration)
            struck = Watched(kind, precision, environ, fault_of(kind, mode, precision, configuration, seed))
            cell["failures"] += judge_struck(cell, plain, struck, configuration)
        except Exception as error:  # the cell fails, the next one is looked at all the same
            cell["failures"].append(f"crashes: {first_line(error)}")
            cell["traceback"] = traceback.format_exc()[-2000:]
    return cells


def first_line(error: BaseException) -> str:
    """The first line of an error that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -")]
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
