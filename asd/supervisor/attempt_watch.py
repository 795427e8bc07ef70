"""Watches a running attempt: its events, its steps, and the exit codes of its ranks."""

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from asd.errors import StateError
from asd.event import Event
from asd.isolator import Device
from asd.judge.status import Status
from asd.rundir.follow import Follower
from asd.rundir.names import event_files, status_files
from asd.supervisor.record import Attempt

_WIND_UP_SECONDS = 10.0  # for the launcher, once every rank has ended well
_LONGEST_GAP = 5.0  # seconds between two looks that count towards a hang
_SETTLE_SECONDS = 2.0  # for the other ranks, once one has failed or was found to be bad


class AttemptEnd(NamedTuple):
    """End of an attempt, past or required."""

    reason: str  # reason as text, without a full stop
    done: bool = False  # whether every rank has succeeded


class AttemptWatch:
    """Watch over one attempt, whose ranks leave logs and exit codes in `folder`.

    Args:
        hang_seconds: Least seconds to wait for a step of any rank, or for output before the first one; 0 for ever.
        tell: Receives each line that a rank prints, with its rank.
    """

    def __init__(
        self, run_dir: Path, attempt: Attempt, folder: Path, hang_seconds: float, tell: Callable[[int, str], None]
    ) -> None:
        self.events: list[Event] = []
        self.step = 0  # last step that any rank has made in this attempt; 0 before the first
        self.ranks: dict[int, Device] = {}  # device of each rank with a status, under the name in the status
        self._run, self._since = attempt.run, attempt.began - 1.0  # older events of its name are another's
        self._run_dir, self._devices, self._folder = run_dir, list(attempt.devices), folder
        self._hang_seconds, self._tell = hang_seconds, tell
        self._word = json.dumps(attempt.run, ensure_ascii=False)
        self._follower = Follower(lambda: event_files(run_dir))
        self._logs = {folder / f"worker_{rank}.log": rank for rank in range(len(attempt.devices))}
        self._output = Follower(lambda: self._logs)
        self._steps: dict[str, int] = {}
        self._progress = self._looked = time.monotonic()
        self._moves, self._longest = 0, 0.0  # steps that were seen, and the longest time for one of them
        self._first_sign: float | None = None
        self._all_well: float | None = None

    def poll(self, launcher: int | None, bad: str) -> AttemptEnd | None:
        """Reads everything new; returns the end of the attempt, or None while it shall go on.

        Args:
            launcher: Exit code of the launcher, fetched before this call so that no output is lost; None while it runs.
            bad: Why a device of this attempt must not work any more; empty if there is no reason.
        """
        now = time.monotonic()
        # A scheduler may have stopped all processes, or a folder this one: a hang takes ten looks at least.
        self._progress += max(now - self._looked - min(self._hang_seconds / 10, _LONGEST_GAP), 0.0)
        self._looked = now
        self.read()
        exits = self.exits()
        all_ended, over = len(exits) == len(self._devices), launcher is not None
        if all_ended and not any(exits.values()):
            self._all_well = self._all_well if self._all_well is not None else now
            is_wound_up = over or now - self._all_well > _WIND_UP_SECONDS
            return AttemptEnd("every rank has ended with exit code 0", done=True) if is_wound_up else None
        sign = self._sign(launcher, bad)
        if sign is not None:
            self._first_sign = self._first_sign if self._first_sign is not None else now
            return sign if over or all_ended or now - self._first_sign > _SETTLE_SECONDS else None
        patience = max(self._hang_seconds, 3 * self._longest)  # with sunk data a step may be a whole epoch
        if self._hang_seconds and now - self._progress > patience:
            return AttemptEnd(f"no rank has made a step for {patience:.0f} s")
        return None

    def read(self) -> None:
        """Reads new output, events and steps."""
        for line in self._output.poll():
            self._tell(self._logs.get(line.path, 0), line.text)
            if not self._moves:  # it may compile for long, or make unjudged steps
                self._progress = self._looked
        while lines := self._follower.poll():
            for line in lines:
                self._take(line.text)
        try:
            for path in status_files(self._run_dir):
                self._look_at(path)
        except OSError:  # while a shared folder can't be read, no step can be seen
            self._progress = self._looked

    def exits(self) -> dict[int, int]:
        """Returns the exit codes of the ranks that have ended."""
        found = {}
        for rank in range(len(self._devices)):
            with contextlib.suppress(OSError, ValueError):
                found[rank] = int((self._folder / f"rank{rank}.exit").read_text())
        return found

    def _sign(self, launcher: int | None, bad: str) -> AttemptEnd | None:
        """Returns the first reason to end the attempt; None if there is none."""
        if bad:
            return AttemptEnd(bad)
        for rank, code in self.exits().items():
            if code:
                return AttemptEnd(f"rank {rank} on device {self._devices[rank]} ended {_in_words(code)}")
        return AttemptEnd(f"the launcher ended {_in_words(launcher)}") if launcher is not None else None

    def _take(self, text: str) -> None:
        if self._word not in text:
            return  # most of a long log is about other runs, and reading an event takes its time
        with contextlib.suppress(StateError):
            event = Event.from_json(text)
            if event.run == self._run and event.time >= self._since:
                self.events.append(event)

    def _look_at(self, path: Path) -> None:
        with contextlib.suppress(OSError, StateError, UnicodeDecodeError):  # as one that is being removed
            status = Status.from_json(path.read_text(encoding="utf-8"))
            if status.run == self._run and status.step != self._steps.get(path.name):
                self._steps[path.name] = status.step
                if 0 <= status.rank < len(self._devices):
                    self.ranks[status.rank] = Device(status.host, status.device, status.rank)
                before, self._progress = self._progress, self._looked
                if status.steps and status.step > self.step:
                    self.step = status.step
                    self._moves += 1
                    # The first one may have compiled; it counts only until there is another one.
                    self._longest = max(self._progress - before, self._longest if self._moves > 2 else 0.0)


def _in_words(code: int) -> str:
    return f"with exit code {code}" if code <= 128 else f"with exit code {code} (signal {code - 128})"
