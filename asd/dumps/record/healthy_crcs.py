"""The check sums of a healthy run, by which a later run is compared while it runs.

The ledger is a dump of that run with `summary_mode` md5, of any level: every tensor of every step with its CRC-32.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from asd.dumps.formats.dump_folder import find_dumps, read_dump
from asd.errors import StateError

__all__ = ["StepLedger", "read_step"]

_SLOTS = {"input_args": "input", "input_kwargs": "input"}


class StepLedger:
    """One rank of one step of the healthy run.

    Args:
        path: Its dump.json.

    Raises:
        StateError: It is no dump, or one without check sums.
        OSError: It can't be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known = {
            name: {slot.suffix: slot.md5 for slot in entry.slots if slot.md5 is not None}
            for name, entry in read_dump(path).entries.items()
        }
        if not any(self._known.values()):
            raise StateError(f'{path} holds no check sums; valid is a dump with "summary_mode": "md5".')

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def is_same(self, name: str, part: str, place: Sequence[int | str], crc: str) -> bool:
        """Whether the healthy run had this very tensor here; False where it had none.

        Args:
            name: Of the entry.
            part: Key of the entry in dump.json, such as `input_args` or `output`.
            place: Indices and keys in that part.
            crc: As `asd.dumps.record.crc.crc32` returns it.
        """
        if ".parameters_grad" in name:
            suffix = part
        else:
            suffix = ".".join([_SLOTS.get(part, part), *map(str, place)])
        return self._known.get(name, {}).get(suffix) == crc


def read_step(folder: Path, step: int, rank: int) -> StepLedger | None:
    """The ledger of one rank of one step; None where the healthy run has none.

    Args:
        folder: The `dump_path` of the healthy run.
        step: From 0.
        rank: From 0.

    Raises:
        ConfigError: There is no dump in `folder`.
        StateError: The dump is none, or has no check sums.
        OSError: It can't be read.
    """
    path = find_dumps(folder).get((step, rank))
    return None if path is None else StepLedger(path)
