"""What of the gradients is recorded, as a `config.json` with the task `grad_probe` says it.

{"task": "grad_probe", "dump_path": "./gradients", "rank": [], "step": [],
"grad_probe": {"grad_level": "L1", "param_list": []}}
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from asd.dumps.formats.config_object import ConfigObject
from asd.dumps.formats.json_file import read_json
from asd.errors import ConfigError

__all__ = ["LEVELS", "GradientOptions"]

LEVELS = ("L0", "L1")
_OTHERS = {
    "level",
    "precision",
    "async_dump",
    "tensor",
    "statistics",
    "overflow_check",
    "free_benchmark",
    "run_ut",
    "structure",
    "exception_dump",
    "md5",
    "acc_check",
    "extra_info",
    "seed",
    "is_deterministic",
}
"""Keys of other tasks, whose settings a file may hold as well."""


@dataclass(frozen=True)
class GradientOptions:
    """Settings of the gradient monitor.

    Attributes:
        dump_path: Folder that the tables are written below.
        grad_level: `L0` statistics with a CRC, `L1` statistics and directions.
        param_list: Names of the parameters to record, of which each optimizer may have some; empty: all.
        rank: Ranks to record; empty: all.
        step: Steps to record, from 0; empty: all. A step is one call of the optimizer.
    """

    dump_path: Path
    grad_level: str = "L1"
    param_list: tuple[str, ...] = ()
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
        given = ConfigObject(content, where)
        given.one_of("task", ("grad_probe",), "")
        inner = ConfigObject(given.take("grad_probe", {}), f"grad_probe in {where}")
        path, rank, step = given.text("dump_path", "./dump"), given.numbers("rank"), given.numbers("step")
        given.end(_OTHERS)
        level, names = inner.one_of("grad_level", LEVELS, "L1"), inner.texts("param_list")
        inner.end({"bounds"})  # of intervals that another level has
        return cls(Path(path), level, names, rank, step)

    def wants(self, number: int, which: str) -> bool:
        """Whether a step or rank is recorded: `which` is `step` or `rank`."""
        chosen: frozenset[int] = getattr(self, which)
        return not chosen or number in chosen
