"""The table's cells: what holds for a kind in a mode, a precision and a configuration."""

from __future__ import annotations

import logging
import tempfile
import traceback
import zlib
from typing import Any

import numpy as np
from kinds import KINDS
from trainings import BAD, STEPS, Fault, State, Training

from asd import Config, Event, Level
from asd.operators import StepMonitor
from asd.operators.product_check import schedule

CONFIGURATIONS = {
    "document": {},
    "adaptive": {"ASD_RULE": "adaptive"},
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


def judge_healthy(cell: dict[str, Any], plain: Training, healthy: Watched, configuration: str) -> list[str]:
    """What is wrong with a training that had no fault."""
    wrong = []
    differ = differing(plain.after, healthy.after)
    steps = [i + 1 for i, pair in enumerate(zip(plain.losses, healthy.losses, strict=False)) if pair[0] != pair[1]]
    equal = not differ and not steps and len(plain.losses) == len(healthy.losses)
    if cell["repeatable"]:
        cell["equal"] = equal
        if not equal:
            since = f"losses from step {steps[0]} on" if steps else "losses are equal"
            wrong.append(f"not equal: {len(differ)} of {len(plain.after)} tensors, such as {differ[:1]}; {since}")
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


def judge_struck(cell: dict[str, Any], plain: Training, struck: Watched, configuration: str) -> list[str]:
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
    if configuration != "everything":
        return wrong + _judge_stopped(cell, plain, struck)
    return wrong + _judge_gone_on(cell, plain, struck)


def _judge_stopped(cell: dict[str, Any], plain: Training, struck: Watched) -> list[str]:
    cell["healed"] = None
    if struck.ended_by is None or struck.ended_by.event.step != BAD:
        return ["the training was not ended in the fault's step"]
    if not cell["repeatable"]:
        return []
    mine = {name: value for name, value in plain.before.items() if name[0] in "01"}
    differ = differing(mine, struck.after, statistics=False)
    return [f"the update was not refused: {len(differ)} tensors differ, such as {differ[:1]}"] if differ else []


def _judge_gone_on(cell: dict[str, Any], plain: Training, struck: Watched) -> list[str]:
    wrong = []
    if len(struck.losses) != STEPS:
        wrong.append(f"{len(struck.losses)} steps of {STEPS}")
    refused = struck.status[0].refused
    healed = not differing(plain.after, struck.after) and plain.losses == struck.losses
    cell["healed"] = healed if cell["repeatable"] else None
    if cell["repeatable"] and not healed:
        if struck.says("made again", "second look", "asd_confirm"):
            cell["healed"] = "no, and it is said"
        else:
            wrong.append("not healed, and nothing says why")
        if refused != 1:
            wrong.append(f"{refused} updates refused where one was bad")
    return wrong


def _of_event(event: Event) -> str:
    return f"step {event.step}, {event.checkpoint}: {event.reason} ({event.value:.3g}, limit {event.limit:.3g})"


def run_group(kind: str, mode: str, precision: str, seed: int) -> list[dict[str, Any]]:
    """The cells of all configurations; MindSpore is in `mode` already."""
    name = {"kind": kind, "mode": mode, "precision": precision}
    cells: list[dict[str, Any]] = []
    try:
        plain = Training(kind, precision)
    except Exception as error:  # whatever MindSpore can't do
        note = f"plain MindSpore fails: {first_line(error)}"
        return [{**name, "configuration": each, "failures": [], "note": note} for each in CONFIGURATIONS]
    finite = all(np.isfinite(np.frombuffer(each, np.float32)).all() for each in plain.losses)
    repeatable: bool | None = None
    for configuration, environ in CONFIGURATIONS.items():
        cell: dict[str, Any] = {**name, "configuration": configuration, "note": "", "failures": []}
        cells.append(cell)
        if not finite:
            cell["note"] = "plain MindSpore's loss is not finite"
        try:
            healthy = Watched(kind, precision, environ)
            same = not differing(plain.after, healthy.after) and plain.losses == healthy.losses
            if not same and repeatable is None:
                again = Training(kind, precision)
                repeatable = not differing(plain.after, again.after) and plain.losses == again.losses
            cell["repeatable"] = same if same else bool(repeatable)
            if not cell["repeatable"]:
                cell |= {"equal": None, "note": "plain MindSpore does not repeat itself"}
            cell["failures"] += judge_healthy(cell, plain, healthy, configuration)
            fault = fault_of(kind, mode, precision, configuration, seed)
            struck = Watched(kind, precision, environ, fault)
            cell["failures"] += judge_struck(cell, plain, struck, configuration)
        except Exception as error:  # the cell fails, the next one is looked at all the same
            cell["failures"].append(f"crashes: {first_line(error)}")
            cell["traceback"] = traceback.format_exc()[-2000:]
    return cells


def first_line(error: BaseException) -> str:
    """The first line of an error that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -")]
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
