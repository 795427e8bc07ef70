"""The settings of a debugger: what a `config.json` says, checked.

The keys are those of the accuracy tools of the Ascend ecosystem:

    {"task": "tensor", "dump_path": "./dump", "rank": [], "step": [0], "level": "L0",
     "tensor": {"scope": [], "list": [], "data_mode": ["all"]}}
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asd.dumps.record.config_object import ConfigObject
from asd.dumps.record.not_done import COUNTS, NO_LEVEL, NOT_DONE, not_done
from asd.errors import ConfigError
from asd.regular_file import read_regular

TASKS = ("statistics", "tensor", "md5", "overflow_check", "grad_probe")
LEVELS = ("L0", "L1", "mix", "debug")
_STANDS_FOR = {"md5": "statistics", "structure": "statistics", "exception_dump": "statistics"}
"""Tasks that are done by another, which records as much or more."""
_SUMS, _FOUR = ("md5", "hash", "xor"), ("statistics", "max", "min", "mean", "l2norm")
_TOP = ("task", "dump_path", "level", "rank", "step", "dump_enable", "async_dump", "extra_info", "risk_level")
_INNER = ("scope", "list", "data_mode", "summary_mode", "tensor_list", "overflow_nums", "check_mode", "grad_level")
_ONE_MODE = ("aicore", "atomic")
CHECK_MODES = {mode: mode for mode in ("all", *_ONE_MODE)} | {f"{mode}_overflow": mode for mode in _ONE_MODE}
DIRECTIONS = {"forward", "backward"}
SIDES = {"input", "output"}
MAX_BYTES = 1024 * 1024

_CELL = re.compile(r"(Cell|Module)\..*\.(forward|backward)\.\d+")
_API = re.compile(
    r"(Tensor|Functional|Primitive|Mint|MintFunctional|Distributed|MintDistributed|Jit|Torch|NPU|VF)\."
    r".*\.\d+\.(forward|backward)"
)


@dataclass(frozen=True)
class DebuggerConfig:
    """Choice of what is recorded, and where it is written."""

    dump_path: Path  # folder that the dumps are written below
    # `statistics`, `tensor` (also writes the tensors), `overflow_check`, or `grad_probe`: what
    # `PrecisionDebugger.monitor` records. `md5` in a file stands for `statistics` with that `summary_mode`, `structure`
    # and `exception_dump` for `statistics`
    task: str = "statistics"
    level: str = "L1"  # `L0` modules, `L1` APIs and operators, `mix` both
    rank: frozenset[int] = frozenset()  # ranks to record, from 0; empty: all
    step: frozenset[int] = frozenset()  # steps to record, from 0; empty: all
    scope: tuple[str, ...] = ()  # empty, or the first and the last entry to record
    # the key `list`: entries whose name contains one of these; with `mix` also all that runs inside a module whose name
    # does
    names: tuple[str, ...] = ()
    # a part of `forward`, `backward`, `input`, `output`; a missing pair counts as both
    data_mode: frozenset[str] = field(default=frozenset(DIRECTIONS | SIDES))
    md5: bool = False  # whether the CRC-32 of each tensor is recorded
    # tensors of entries whose name contains one of these are written although the task is `statistics`
    tensor_list: tuple[str, ...] = ()
    high: bool = False  # `precision` is `high`: Mean and Norm of float16 in float32
    overflow_nums: int = 1  # overflows after which training ends; -1: never
    check_mode: str = "all"  # `all`, `aicore` or `atomic`
    # the key `dump_enable`: whether a step is recorded; a file is read again when it changed. None: always
    enabled: bool | None = None
    grad_level: str = "L1"  # of the gradients, `L0`: statistics with a CRC, `L1`: statistics and directions
    # parameters whose gradients are recorded; an optimizer may have only some of them. Empty: all
    param_list: tuple[str, ...] = ()
    not_done: tuple[str, ...] = ()  # keys of the file that have no effect here, with the reasons

    @classmethod
    def read(cls, path: str | Path, **others: Any) -> DebuggerConfig:
        """Reads a `config.json`.

        Args:
            path: The file.
            others: Values that take the place of those in the file.
        """
        try:
            content = json.loads(read_regular(path, MAX_BYTES, links=True).decode("utf-8-sig"))
        except OSError as error:
            raise ConfigError("config_path", str(path), f"it can't be read ({error.strerror or error})") from error
        except (ValueError, RecursionError) as error:
            raise ConfigError("config_path", str(path), f"it must be a file with one JSON object ({error})") from error
        return cls.of({**content, **others} if isinstance(content, dict) else content, str(path))

    @classmethod
    def of(cls, content: Any, where: str = "config") -> DebuggerConfig:
        """Checks what a `config.json` holds.

        Args:
            content: The object.
            where: Named in errors.
        """
        given = ConfigObject(content, where)
        task = _chosen(given, "task", (*TASKS, *_STANDS_FOR), "statistics", NOT_DONE)
        level = _chosen(given, "level", LEVELS, "L1", NO_LEVEL)
        settings: dict[str, Any] = {
            "dump_path": Path(given.text("dump_path", "./dump")),
            "task": _STANDS_FOR.get(task, task),
            "level": level,
            "rank": given.numbers("rank"),
            "step": given.numbers("step"),
            "high": given.one_of("precision", ("low", "high"), "low") == "high",
        }
        if content.get("dump_enable") is not None:
            settings["enabled"] = given.flag("dump_enable")
        section = given.take(task, {})
        inner = ConfigObject(section, f"{task} in {where}")
        # A file may hold the settings of several tasks.
        given.end({*TASKS, *NOT_DONE, "dump_enable"}, _INNER, f"in the object named after the task, {task!r}")
        settings |= _of_task(inner, task, level)
        if "precision" in section:
            settings["high"] = inner.one_of("precision", ("low", "high"), "low") == "high"
        inner.end(NOT_DONE, _TOP, f"beside the object {task!r}, not in it")
        return cls(**settings, not_done=not_done({**content, **section}))

    def wants(self, number: int, which: str) -> bool:
        """Returns whether a step or rank is recorded: `which` is `step` or `rank`."""
        chosen: frozenset[int] = getattr(self, which)
        return not chosen or number in chosen

    def takes(self, *, module: bool) -> bool:
        """Returns whether calls of modules, or of APIs and operators, become entries.

        They are hooked as long as the process lives. An overflow check at `L1` looks at modules too: where no call is
        seen, the module that holds it is.
        """
        return (self.modules or self.task == "overflow_check") if module else self.apis

    @property
    def modules(self) -> bool:
        """True where modules are recorded."""
        return self.level in ("L0", "mix")

    @property
    def apis(self) -> bool:
        """True where APIs and operators are recorded."""
        return self.level in ("L1", "mix")


def _chosen(given: ConfigObject, key: str, valid: tuple[str, ...], default: str, reasons: Mapping[str, str]) -> str:
    try:
        return given.one_of(key, valid, default)
    except ConfigError as error:
        reason = reasons.get(error.value) if isinstance(error.value, str) else None
        if reason is None:
            raise
        raise given.wrong(key, error.value, f"one of {', '.join(valid)}; {reason}") from None


def _of_task(inner: ConfigObject, task: str, level: str) -> dict[str, Any]:
    """Returns the settings in the section of a task."""
    if task == "grad_probe":
        inner.take("bounds", None)  # of intervals that another level has
        return {"grad_level": inner.one_of("grad_level", ("L0", "L1"), "L1"), "param_list": inner.texts("param_list")}
    found = _selection(inner, level)
    if task == "overflow_check":
        mode = inner.one_of("check_mode", tuple(CHECK_MODES), "all")
        return {**found, "overflow_nums": inner.limit("overflow_nums", 1), "check_mode": CHECK_MODES[mode]}
    found["md5"] = task == "md5" or any(each in _SUMS for each in _summaries(inner))
    return found if task == "tensor" else {**found, "tensor_list": inner.texts("tensor_list")}


def _summaries(inner: ConfigObject) -> tuple[str, ...]:
    """Returns what of each tensor is asked for: one text, or a list of texts."""
    given = inner.take("summary_mode", "statistics")
    chosen = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list) else (None,)
    for each in chosen:
        if each not in (*_SUMS, *_FOUR, *COUNTS):
            valid = f"statistics, md5, xor, or a list of {', '.join((*_FOUR[1:], *_SUMS[:2], *COUNTS))}"
            raise inner.wrong("summary_mode", given, valid)
    return chosen


def _selection(inner: ConfigObject, level: str) -> dict[str, Any]:
    scope = inner.texts("scope")
    if len(scope) not in (0, 2):
        raise inner.wrong("scope", list(scope), "an empty list, or the names of the first and the last entry")
    patterns = {"L0": (_CELL,), "L1": (_API,)}.get(level, (_CELL, _API))
    example = {"L0": "Cell.layers.0.Dense.forward.0", "L1": "Mint.add.0.forward"}
    for name in scope:
        if not any(pattern.fullmatch(name) for pattern in patterns):
            valid = example.get(level) or " or ".join(example.values())
            raise inner.wrong("scope", name, f"at level {level} a name like {valid}")
    modes = frozenset(inner.texts("data_mode") or ("all",))
    if not (modes == {"all"} or modes <= DIRECTIONS | SIDES):
        raise inner.wrong("data_mode", sorted(modes), '["all"], or some of forward, backward, input and output')
    directions, sides = modes & DIRECTIONS, modes & SIDES
    return {
        "scope": scope,
        "names": inner.texts("list"),
        "data_mode": (directions or frozenset(DIRECTIONS)) | (sides or frozenset(SIDES)),
    }
