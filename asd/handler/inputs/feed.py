"""Feeds a fault handler from event logs, each line exactly once, however often it is killed."""

import json
from collections.abc import Sequence
from pathlib import Path

from asd.errors import StateError
from asd.event import Event
from asd.handler.handler import FaultHandler
from asd.handler.inputs.owners import may_give_back, strangers
from asd.handler.model.decision import Decision
from asd.rundir.folders import RunFolders
from asd.rundir.follow import Follower

_CURSOR = "cursor"
_AT_ONCE = 500  # lines in one transaction: half a second of work


class LogFeed:
    """Reads the logs of run folders.

    Args:
        run_dirs: Folders of runs, or what holds them; they need not be there yet.
    """

    def __init__(self, handler: FaultHandler, run_dirs: Sequence[Path]) -> None:
        self._handler = handler
        self.folders = RunFolders(run_dirs)
        self._strangers: dict[str, str] = {}
        self.bad_lines = self.events = 0  # lines so far that were no events, and that were
        self.not_believed = 0  # lines that report a release and were written by a user who may not release devices
        self.cursor_problem = ""  # why the logs are read from their beginning; empty when they are not
        self._follower = self._resume()

    @property
    def complaints(self) -> list[str]:
        """Present problems with the logs, one sentence each, which a further bad line leaves as it is."""
        follower = self._follower
        left_out = {**self.folders.unreadable, **follower.unreadable, **self._strangers}
        back = "lines of other users' logs report a release; only root and this handler's user may."
        counts = {
            "lines of the logs were too long and were skipped.": follower.skipped,
            "logs vanished before they were read to their end.": follower.lost,
            "lines of the logs are not events and were skipped.": self.bad_lines,
            back: self.not_believed,
        }
        sentences = [f"{path}: {reason}; it is left out." for path, reason in left_out.items()]
        return sentences + [f"some {what}" for what, number in counts.items() if number]

    def step(self) -> list[Decision] | None:
        """Handles new events; returns None without any. After a StateError the next call reads the same lines."""
        lines = self._follower.poll(_AT_ONCE)
        if not lines:
            return None
        events = []
        bad = forged = 0
        for line in lines:
            try:
                event = Event.from_json(line.text)
            except StateError:
                bad += 1
                continue
            if event.kind == "recovery" and not may_give_back(line.path):
                forged += 1
            else:
                events.append(event)
        try:
            decisions = self._handler.handle_many(events, {_CURSOR: json.dumps(self._follower.state())})
        except StateError:
            self._follower = self._resume()
            raise
        self.bad_lines += bad
        self.not_believed += forged
        self.events += len(events)
        return decisions

    def _files(self) -> list[Path]:
        logs = self.folders.event_files()
        self._strangers = strangers(logs)
        return [path for path in logs if str(path) not in self._strangers]

    def _resume(self) -> Follower:
        text = self._handler.store.meta(_CURSOR)
        try:
            return Follower(self._files, json.loads(text) if text else None, links=False)
        except (StateError, ValueError) as error:
            self.cursor_problem = (
                f"How far the logs were read is not known ({error}); they are read from their beginning."
            )
            return Follower(self._files, None, links=False)
