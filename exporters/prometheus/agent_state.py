"""What outlives an agent: how far the logs were read and what was counted, in one file of one agent."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from asd.errors import StateError
from asd.records import fill, load_if_there
from asd.rundir.disk import HeldError, take_lock, write_whole

__all__ = ["SavedState", "StateLock"]

_VERSION = 1
_MOST_BYTES = 1 << 28


@dataclass
class SavedState:
    """How far the logs were read, and what was counted up to there."""

    cursor: Annotated[dict[str, Any], Meta(description="an object")]
    ledger: Annotated[dict[str, Any], Meta(description="an object")]

    @classmethod
    def load(cls, path: Path) -> SavedState | None:
        """What stands in a file; None where there is none.

        Raises:
            StateError: It can't be read, or is something else.
        """
        data = load_if_there(path, "state file", "the JSON that an agent saves", version=_VERSION, most=_MOST_BYTES)
        return None if data is None else fill(cls, data, f"state file {path}")

    def save(self, path: Path) -> None:
        """Puts it in the place of a file.

        Raises:
            OSError: It can't be written.
        """
        write_whole(path, json.dumps({"version": _VERSION, "cursor": self.cursor, "ledger": self.ledger}))


class StateLock:
    """A lock that ends with the process, however it ends.

    Args:
        state_file: What is locked; the lock itself is a hidden file beside it.
        foreign: Folders that others make, when they begin; they are waited for and never made here.
    """

    def __init__(self, state_file: Path, foreign: Collection[Path] = ()) -> None:
        self.state_file = state_file
        self._may_make = state_file.parent not in foreign
        self._descriptor: int | None = None

    def has_folder(self) -> bool:
        """Whether the folder of the state file is there, or may be made."""
        return self._may_make or self.state_file.parent.is_dir()

    def take(self) -> None:
        """Takes the lock, unless it is held already or can't be held: no folder, a read-only one, no locks on it.

        Raises:
            StateError: Another process holds it.
        """
        if self._descriptor is not None or not self.has_folder():
            return
        try:
            self.state_file.parent.mkdir(parents=True, exist_ok=True)
            path = self.state_file.with_name(f".{self.state_file.name}.lock")
            self._descriptor = take_lock(path)
        except HeldError:
            raise StateError(
                f"the state file {self.state_file} is in use by another exporter; valid is one of its own for each."
            ) from None
        except OSError:
            return

    def release(self) -> None:
        """Gives the lock back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
