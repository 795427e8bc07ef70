"""Recorded feature values: the format of their files, and its reader.

Each line of a file is a complete JSON object: some steps of one rank with everything that is needed to judge them. So
files can be cut, rotated and joined at any line break, and a line torn by a kill loses only its own steps. The keys of
a line:

- `asd_recording`: the version of this format, 3
- `run`, `rank`: as in events
- `rule`, `detectors`, `upper`, `sigma`, `on_anomaly`: the settings that were in force
- `checkpoints`: their names and kinds, `[["backbone.norm", "B"], ...]`
- `steps`: the steps, in the order in which they were made
- `left_out`: per index into `steps` why the step is not healthy: `first`, `second` (the level of an event) or
  `refused`
- `values`: per step a list with the value of each checkpoint, without loss scale; `null` where it was not checked, the
  texts `inf` and `nan` where an element was not finite
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from msgspec import Meta

from asd import older
from asd.config import Config
from asd.errors import ConfigError, StateError
from asd.origin import Origin
from asd.records import fill, floats, plain
from asd.rules.kinds import KINDS
from asd.rules.reading import Reading, unscaled
from asd.rundir.names import value_files

VERSION: Final = 3
MAX_LINE: Final = 64 << 20  # bytes of the longest line that is read or written
_SETTINGS = ("rule", "detectors", "upper", "sigma", "on_anomaly")


class RecordedStep(NamedTuple):
    """Values of one rank in one step."""

    rank: int  # the rank
    step: int  # training step, from 1
    left_out: str  # `first`, `second` or `refused` for a step that is not healthy, else empty
    values: list[tuple[str, str, float]]  # name, kind and value of every checkpoint that was checked


class Chunk:
    """Steps of one rank that will be one line.

    Args:
        checkpoints: Name and kind of each; only these are recorded.
    """

    def __init__(self, config: Config, origin: Origin, checkpoints: Sequence[tuple[str, str]]) -> None:
        self.steps: list[int] = []
        self.left_out: dict[str, str] = {}
        self._head = {
            "asd_recording": VERSION,
            "run": origin.run,
            "rank": origin.rank,
            **{key: getattr(config, key) for key in _SETTINGS},
            "checkpoints": checkpoints,
        }
        self._names = [name for name, _ in checkpoints]
        self._values: list[list[float | None]] = []

    def add(self, step: int, readings: Sequence[Reading], loss_scale: float) -> None:
        """Adds a step; every reading must be of one of the checkpoints."""
        row = {reading.checkpoint: unscaled(reading, loss_scale) for reading in readings}
        self.steps.append(step)
        self._values.append([row.get(name) for name in self._names])

    def leave_out(self, reason: str) -> None:
        """Marks the last step as not healthy; a first-level event overrides other reasons."""
        last = str(len(self.steps) - 1)
        if self.left_out.get(last) != "first":
            self.left_out[last] = reason

    def line(self) -> bytes:
        """Returns the line, with its line break."""
        body = {"steps": self.steps, "left_out": self.left_out, "values": plain(self._values)}
        return json.dumps({**self._head, **body}, separators=(",", ":"), allow_nan=False).encode() + b"\n"


class Recording:
    """Recorded values of all ranks of a run."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._files = value_files(run_dir)
        settings = None
        for path in self._files:
            for line, _ in self._lines(path):
                settings = _settings(line)
        if settings is None:
            raise ConfigError(
                "RUN_DIR",
                str(run_dir),
                "it must be the folder of a run that recorded its values, as one with ASD_OPTIONS=record:1 does",
            )
        self.settings: Config = settings  # settings in the last line

    def steps(self, progress: Callable[[int], object] = lambda _: None) -> Iterator[RecordedStep]:
        """Yields all steps, rank after rank, in the order in which they were made.

        Args:
            progress: Called with the number of bytes read so far.
        """
        read = 0
        for path in self._files:
            for line, size in self._lines(path):
                read += size
                yield from _steps(line)
                progress(read)

    @property
    def size(self) -> int:
        """Returns the bytes of all files."""
        return sum(path.stat().st_size for path in self._files)

    def _lines(self, path: Path) -> Iterator[tuple[_Line, int]]:
        """Yields the lines with their number of bytes; a line that is not JSON was torn by a kill and is skipped."""
        with path.open("rb") as file:
            for number in itertools.count(1):
                text = file.readline(MAX_LINE + 1)
                if not text:
                    return
                if len(text) > MAX_LINE:
                    raise StateError(f"{path}, line {number} has more than {MAX_LINE} bytes, the most there can be.")
                try:
                    data = json.loads(text)
                except (ValueError, RecursionError):
                    continue
                try:
                    line = fill(_Line, floats(older.renamed(data), "values"), "record")
                    _settings(line)
                except ValueError as error:
                    raise StateError(f"{path}, line {number} is no record of feature values: {error}") from error
                yield line, len(text)


@dataclass
class _Line:
    asd_recording: Annotated[Literal[3], Meta(description=f"{VERSION}, the one that is known")]
    rank: Annotated[int, Meta(ge=0, lt=2**31, description="a whole number from 0 to 2147483647")]
    checkpoints: Annotated[list[tuple[str, str]], Meta(description="a list of names and kinds")]
    steps: Annotated[
        list[Annotated[int, Meta(ge=0, lt=2**53)]], Meta(description="a list of whole numbers from 0 to 2**53 - 1")
    ]
    left_out: Annotated[
        dict[str, Literal["first", "second", "refused"]],
        Meta(description="an object of indices into steps and first, second, refused"),
    ]
    values: Annotated[list[list[float | None]], Meta(description="a list of numbers and null for each step")]
    rule: Any = None
    detectors: Any = None
    upper: Any = None
    sigma: Any = None
    on_anomaly: Any = None

    def __post_init__(self) -> None:
        names, kinds = {name for name, _ in self.checkpoints}, {kind for _, kind in self.checkpoints}
        if len(names) < len(self.checkpoints) or not kinds <= KINDS.keys():
            raise StateError(f"its checkpoints are {str(self.checkpoints)[:80]}; they must be known kinds, each once.")
        if not self.left_out.keys() <= set(map(str, range(len(self.steps)))):
            raise StateError(f"left_out is {str(self.left_out)[:80]}; it must hold indices into its steps.")
        if [len(row) for row in self.values] != [len(names)] * len(self.steps):
            raise StateError("it must have one value for each of its steps and checkpoints.")
        if any(value is not None and value < 0 for row in self.values for value in row):
            raise StateError("one of its values is below 0; all must be at least 0.")


def _settings(line: _Line) -> Config:
    given: dict[str, Any] = {key: getattr(line, key) for key in _SETTINGS}
    given.update({key: tuple(value) for key, value in given.items() if isinstance(value, list)})
    try:
        return Config(**given)
    except TypeError as error:  # a value that can't be hashed
        raise StateError(f"its settings are not valid: {error}.") from error


def _steps(line: _Line) -> Iterator[RecordedStep]:
    for i, (step, row) in enumerate(zip(line.steps, line.values, strict=True)):
        places = zip(line.checkpoints, row, strict=True)
        seen = [(name, kind, value) for (name, kind), value in places if value is not None]
        yield RecordedStep(line.rank, step, line.left_out.get(str(i), ""), seen)
