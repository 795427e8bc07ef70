"""What of the gradients is recorded, as a `config.json` with the task `grad_probe` says it.

{"task": "grad_probe", "dump_path": "./gradients", "rank": [], "step": [],
"grad_probe": {"grad_level": "L1", "param_list": [], "bounds": [-1, 0, 1]}}
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from asd.errors import ConfigError
from asd.evidence.json_stream import read_json

__all__ = ["LEVELS", "GradientOptions"]

LEVELS = ("L0", "L1", "L2")
LARGEST_NUMBER = 1_000_000
_KEYS = {"task", "dump_path", "rank", "step", "level", "precision", "async_dump"}
_TASKS = {
    "tensor", "statistics", "overflow_check", "free_benchmark", "grad_probe", "run_ut", "structure", "exception_dump",
}  # fmt: skip
_INNER_KEYS = {"grad_level", "param_list", "bounds"}
_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")


@dataclass(frozen=True)
class GradientOptions:
    """Settings of the gradient monitor.

    Attributes:
        dump_path: Folder that the tables are written below.
        grad_level: `L0` statistics with a CRC, `L1` statistics and directions, `L2` also how the values are spread.
        param_list: Names of the parameters to record; empty: all.
        bounds: Of the intervals of `L2`, ascending.
        rank: Ranks to record; empty: all.
        step: Steps to record, from 0; empty: all. A step is one call of the optimizer.
    """

    dump_path: Path
    grad_level: str = "L1"
    param_list: tuple[str, ...] = ()
    bounds: tuple[float, ...] = (-1, 0, 1)
    rank: frozenset[int] = frozenset()
    step: frozenset[int] = frozenset()

    @classmethod
    def read(cls, path: str | Path) -> GradientOptions:
        """Reads a `config.json`.

        Raises:
            ConfigError: The file is missing, or has an unknown key or a wrong value.
            StateError: It is not JSON.
        """
        if not Path(path).is_file():
            raise ConfigError("config_path", str(path), "there is no such file")
        return cls.of(read_json(Path(path), 1 << 20), str(path))

    @classmethod
    def of(cls, content: object, where: str = "config") -> GradientOptions:
        """Checks what a `config.json` holds.

        Args:
            content: The object.
            where: Named in errors.

        Raises:
            ConfigError: It has an unknown key or a wrong value.
        """
        if not isinstance(content, dict):
            raise ConfigError(where, content, "valid is a JSON object")
        _refuse_unknown(content, _KEYS | _TASKS, where)
        if content.get("task") != "grad_probe":
            raise ConfigError(f"task in {where}", content.get("task"), "valid is grad_probe")
        inner = content.get("grad_probe", {})
        if not isinstance(inner, dict):
            raise ConfigError(f"grad_probe in {where}", inner, "valid is a JSON object")
        _refuse_unknown(inner, _INNER_KEYS, f"grad_probe in {where}")
        path = content.get("dump_path", "./dump")
        if not isinstance(path, str) or not path or "\0" in path:
            raise ConfigError(f"dump_path in {where}", path, "valid is the name of a folder")
        level = inner.get("grad_level", "L1")
        if level not in LEVELS:
            raise ConfigError(f"grad_level in {where}", level, f"valid is {', '.join(LEVELS)}")
        names = inner.get("param_list", [])
        if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
            raise ConfigError(f"param_list in {where}", names, "valid is a list of names of parameters")
        return cls(
            Path(path), level, tuple(names), _bounds(inner.get("bounds", [-1, 0, 1]), where),
            _numbers(content.get("rank"), f"rank in {where}"), _numbers(content.get("step"), f"step in {where}"),
        )  # fmt: skip

    def wants(self, number: int, which: str) -> bool:
        """Whether a step or rank is recorded: `which` is `step` or `rank`."""
        chosen: frozenset[int] = getattr(self, which)
        return not chosen or number in chosen


def _refuse_unknown(content: dict[str, Any], known: set[str], where: str) -> None:
    for key in content:
        if key not in known:
            raise ConfigError(f"{key[:80]} in {where}", content[key], f"valid are the keys {', '.join(sorted(known))}")


def _bounds(found: object, where: str) -> tuple[float, ...]:
    valid = "valid are ascending numbers from -2**63 to 2**63 - 1"
    numbers = found if isinstance(found, list) else []
    plain = all(type(each) in (int, float) and -(2**63) <= each < 2**63 for each in numbers)
    if not numbers or not plain or any(a >= b for a, b in pairwise(numbers)):
        raise ConfigError(f"bounds in {where}", found, valid)
    return tuple(numbers)


def _numbers(found: object, where: str) -> frozenset[int]:
    valid = f'valid is a list of whole numbers from 0 to {LARGEST_NUMBER}, or ranges such as "4-6"'
    if found is None:
        return frozenset()
    if not isinstance(found, list):
        raise ConfigError(where, found, valid)
    numbers: set[int] = set()
    for item in found:
        match = _RANGE.fullmatch(str(item)) if type(item) in (int, str) else None
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (-1, -1)
        if not 0 <= first <= last <= LARGEST_NUMBER:
            raise ConfigError(where, item, valid)
        numbers.update(range(first, last + 1))
    return frozenset(numbers)
