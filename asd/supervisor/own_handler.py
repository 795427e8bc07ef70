"""Decides about the devices of a supervised job: the fault handler, with the supervisor as its scheduler.

The supervisor isolates a device by not using it. So a device is out if the handler's database lists it as out, and the
isolator `local` has nothing else to do. `asd devices` shows and releases these devices like those of every scheduler.
"""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from asd.errors import ConfigError
from asd.event import Event
from asd.handler import Decision, FaultHandler, NoIsolator, Policy, Store, job_of
from asd.handler.db.store import state_file
from asd.handler.decide.strikes import Strikes
from asd.handler.device_record import device_records
from asd.isolator import Device
from asd.supervisor.cause import Cause
from asd.supervisor.record import Record

POLICY = Policy(settle_seconds=0.0, release_after_seconds=0.0, stale_seconds=30 * 86400.0)
"""Events come after their attribution, so no strike waits; isolated devices are released by hand only."""

DONE, FAILED, NO_DEVICE_LEFT, NOT_A_DEVICE, INTERRUPTED, TERMINATED = 0, 1, 16, 17, 130, 143  # exit codes of a job
_OUT = {"isolating", "isolated", "releasing"}
_TOLD = {"breaker", "others", "failed", "problem"}


class End(NamedTuple):
    """End of a job: no further attempt can help."""

    code: int  # the exit code
    reason: str  # reason, in one sentence


class Devices:
    """The devices of one job on this machine, by number.

    Args:
        known: All devices: the first `ranks` are used first, the rest are spares.
    """

    def __init__(self, known: Sequence[int], ranks: int) -> None:
        self.known, self.ranks = list(known), ranks
        self.out: dict[int, str] = {}  # isolated devices, each with the reason
        self.bench: list[int] = []  # suspected devices, the latest last: used only if no other is left

    def choose(self) -> list[int]:
        """Returns the device of each rank for the next attempt, ascending; empty when there are too few.

        CANN refuses a visible list in another order, and MindSpore gives rank i its i-th device.
        """
        usable = [device for device in self.known if device not in self.out]
        trusted = [device for device in usable if device not in self.bench]
        chosen = [*trusted, *(device for device in self.bench if device in usable)][: self.ranks]
        return sorted(chosen) if len(chosen) == self.ranks else []


class LocalIsolator(NoIsolator):
    """Isolator of a supervised job, whose scheduler is `asd run --ranks`."""

    name = "local"


class OwnHandler:
    """Fault handler of a supervised job: it gets events, and its decisions update `devices`.

    Args:
        host: Name of this node in events; devices of other nodes have the same numbers.
        devices: Devices of the job; kept up to date with isolated and suspected ones.
        publish: Receives the events `isolation` and `recovery`.
        published: Returns whether an event of this id was published before.
    """

    def __init__(
        self,
        run_dir: Path,
        host: str,
        devices: Devices,
        *,
        publish: Callable[[Event], None],
        published: Callable[[str], bool],
        say: Callable[[str], None],
    ) -> None:
        self.devices, self._hosts, self._say = devices, {host}, say  # a training may call this node by another name
        self._store = Store(state_file(run_dir))
        isolator = LocalIsolator(self._store)
        if self._store.take_lease():
            self._store.close()
            valid = "it must be a folder in which no other `asd run` and no `asd handler` is running"
            raise ConfigError("ASD_RUN_DIR", str(run_dir), valid)
        self._handler = FaultHandler(self._store, POLICY, isolator, publish, already=published, from_beginning=True)
        with self._store.transaction():  # for `asd devices release`
            self._store.set_meta("isolator", json.dumps([isolator.name, []]))
        self._book = Strikes(self._store, POLICY)
        self._told: set[str] = set()
        self._known: set[Device] = set()
        self._look_up()

    def close(self) -> None:
        """Releases the database for another handler."""
        self._handler.close()

    def know(self, ranks: Sequence[Device]) -> None:
        """Records the devices, for `asd devices`."""
        found = set(ranks)
        self._hosts |= {each.host for each in found}
        if found - self._known:
            self._handler.know(found - self._known)
            self._known |= found

    def tell(self, events: Sequence[Event]) -> None:
        """Passes events of an attempt to the handler, each once; after a StateError they may be passed again.

        Args:
            events: Events from `asd.supervisor.cause.evidence`.
        """
        new = [event for event in events if event.id not in self._told]
        if new:
            found = self._handler.handle_many(new)
            self._told.update(event.id for event in new)
            self._tell_people(found)

    def tick(self) -> None:
        """Does what users requested meanwhile, such as a release; must be called about once a second."""
        self._tell_people(self._handler.tick())

    def next_move(self, finding: Cause, record: Record) -> End | None:
        """Reports what follows from the end of an attempt; returns an end when another attempt cannot help.

        The handler has got the events of the finding. The record notes a further try.
        """
        event, device, repeated = finding.event, finding.device, ""
        if device in self.devices.out:
            return None
        if finding.kind == "persistent" and self._store.number("breaker_opened"):
            unless = f"but the circuit breaker is open, so device {device} is not isolated"
            see = "see `asd handler --reset-breaker`"
            return End(NOT_A_DEVICE, f"step {event.step}: {finding.reason}, {unless}; {see}.")
        if finding.kind == "transient":
            self._say(f"step {event.step}: {finding.reason}: a strike for device {device}, which continues.")
            return None
        can_tell = finding.kind != "undetermined" or device in self.devices.bench  # by several incidents
        is_suspect = can_tell and finding.kind in ("suspect", "undetermined")
        if is_suspect and self._book.is_software(job_of(event.run), event.step, event.host):
            repeated = f"{event.checkpoint} had the very same value in step {event.step} before"
        elif is_suspect:
            self._say(f"step {event.step}: device {device} is under suspicion: {finding.reason}.")
        if (is_suspect or finding.kind == "persistent") and not repeated:  # a persistent one may be released by hand
            return None
        what = "software or data" if can_tell and finding.kind != "unclear" else "no device can be named"
        sentence = f"step {event.step}: {what}, no device is isolated: {repeated or finding.reason}"
        steps = [each.step for each in record.attempts[-2:]]
        if repeated or (record.tried_again if can_tell else len(set(steps)) < len(steps)):
            return End(NOT_A_DEVICE, f"{sentence}; another attempt would end the same way.")
        record.tried_again = True
        self._say(f"{sentence}; the job is restarted once.")
        return None

    def _tell_people(self, decisions: Sequence[Decision]) -> None:
        """Reports decisions, updates `devices`, and reports what changed of these."""
        for decision in decisions:
            if decision.action in _TOLD:
                self._say(decision.reason)
        before = self.devices.out
        self._look_up()
        for device, reason in self.devices.out.items():
            if device not in before:
                self._say(f"device {device} is isolated: {reason}.")
        for device in sorted(before.keys() - self.devices.out.keys()):
            self._say(f"device {device} is released.")

    def _look_up(self) -> None:
        found = device_records(self._store, POLICY, time.time())
        records = {_number(each.device): each for each in found if each.host in self._hosts}
        self.devices.out = {number: each.reason for number, each in records.items() if each.state in _OUT}
        suspects = [_number(name) for host, name in self._book.suspects(time.time()) if host in self._hosts]
        self.devices.bench = [number for number in suspects if number not in self.devices.out]


def _number(device: str) -> int:
    number = device.partition(":")[2]
    return int(number) if number.isdigit() else -1
