"""A fault handler in a process of its own, with an engine that survives it: one file per isolated device."""

import os
import sys
import time
from pathlib import Path

from asd.exporters.run_files.event_log import EventLog, read_events
from asd.handler import FaultHandler, Policy, Store
from asd.handler.db.store import events_file, state_file
from asd.handler.inputs.feed import LogFeed
from asd.isolator import IsolationOwner

PAUSE = 0.02  # seconds around everything that reaches out, so that kills hit between


class Markers:
    """Every isolation appends one line to the log of the engine, so that a second one would be seen."""

    name = "markers"

    def __init__(self, folder):
        self.folder = folder

    def _marker(self, device):
        return self.folder / f"{device.host} {device.device}"

    def held(self, device):
        time.sleep(PAUSE)
        return IsolationOwner.OURS if self._marker(device).exists() else IsolationOwner.FREE

    def isolate(self, device, reason, event_id):
        time.sleep(PAUSE)
        # One system call is the isolation: as with a real engine it has happened or it has not.
        descriptor = os.open(self._marker(device), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, f"{event_id}\n".encode())
        os.close(descriptor)
        time.sleep(PAUSE)

    def release(self, device):
        self._marker(device).unlink(missing_ok=True)


def main(run_dir, engine):
    log = EventLog(events_file(run_dir))

    def publish(event):
        time.sleep(PAUSE)
        log(event)
        time.sleep(3 * PAUSE)

    def already(identity):
        return log.path.exists() and identity in {event.id for event in read_events(log.path)}

    policy = Policy(settle_seconds=0.3, max_devices=20, max_percent=100, burst_seconds=0.1)
    handler = FaultHandler(Store(state_file(run_dir)), policy, Markers(engine), publish, already=already)
    feed = LogFeed(handler, [run_dir])
    print("begun", flush=True)
    while True:
        if feed.step() is None:
            handler.tick()
            time.sleep(0.005)


main(Path(sys.argv[1]), Path(sys.argv[2]))
