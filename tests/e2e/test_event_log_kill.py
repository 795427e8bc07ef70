"""Kill -9 at any point: what was accepted is in the log, once, and the log stays readable."""

import itertools
import os
import random
import select
import signal
import time
from collections import Counter

from asd import Level
from asd.exporters.run_files import event_log
from asd.exporters.run_files.event_log import EventLog, read_events
from asd.rundir.names import event_file, event_files
from tests.support.events import event_maker

SMALL = 5_000  # bytes of a file: about six events, so that rotations are frequent
KEEP = 10_000  # so that nothing is deleted


made = event_maker(device="CPU:0", time=0.0)


def event(writer, step, level=Level.ERROR):
    return made(step, run=writer, level=level)


class Writer:
    """A process that writes first-level events and says which of them were accepted.

    Args:
        work: Called in the child with a function that writes one event and says so.
    """

    def __init__(self, path, name, work):
        self._reader, pipe = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._reader)
            log = EventLog(path, max_bytes=SMALL, keep=KEEP)
            steps = itertools.count(1)

            def write_one(level=Level.ERROR):
                each = event(name, next(steps), level)
                log(each)
                if level is Level.ERROR:
                    os.write(pipe, each.id.encode() + b"\n")

            try:
                work(write_one)
            finally:
                os._exit(0)
        os.close(pipe)

    def wait_for_the_first(self):
        assert select.select([self._reader], [], [], 30)[0]

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    def accepted(self):
        """The ids it had said when it ended."""
        ids = bytearray()
        while block := os.read(self._reader, 1 << 16):
            ids += block
        os.close(self._reader)
        os.waitpid(self.pid, 0)
        return [line.decode() for line in ids.split(b"\n") if len(line) == 32]


def for_ever(write_one):
    while True:
        write_one(Level.WARNING)
        write_one()


def check(run_dir, accepted):
    """Each accepted event is there once; no complete line is anything but an event."""
    found = Counter(each.id for path in event_files(run_dir) for each in read_events(path))
    assert set(found.values()) <= {1}
    assert set(accepted) <= set(found)


def test_a_process_killed_at_random_beside_another_writer_loses_and_doubles_nothing(tmp_path):
    moments = random.Random(7)
    path = event_file(tmp_path, 0)
    accepted, steady = [], Writer(path, "steady", for_ever)
    for number in range(20):
        writer = Writer(path, f"w{number}", for_ever)
        writer.wait_for_the_first()
        time.sleep(moments.uniform(0, 0.02))
        writer.kill()
        accepted += writer.accepted()
    steady.kill()
    of_steady = steady.accepted()
    assert min(len(accepted), len(of_steady)) >= 20
    check(tmp_path, accepted + of_steady)


CALLS = ("open", "stat", "fstat", "pread", "write", "replace", "fsync", "close")


class KillingOs:
    """The module `os`, of which one call is the first thing that the process does no more, or half."""

    def __init__(self, last):
        self._last, self._count = last, 0

    def __getattr__(self, name):
        function = getattr(os, name)
        if name not in CALLS:
            return function

        def call(*args, **options):
            self._count += 1
            if self._count == self._last:
                if name == "write" and len(args[1]) > 1:
                    function(args[0], args[1][: len(args[1]) // 2])  # torn
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **options)

        return call


def test_a_process_killed_at_each_of_its_system_calls_loses_and_doubles_nothing(tmp_path):
    path = event_file(tmp_path, 0)
    accepted = []
    killed = 0
    for last in range(1, 60):

        def work(write_one, last=last):
            event_log.os = KillingOs(last)
            for _ in range(8):
                write_one()

        writer = Writer(path, f"w{last}", work)
        ids = writer.accepted()
        accepted += ids
        killed += len(ids) < 8
    assert killed >= 40
    survivor = EventLog(path, max_bytes=SMALL, keep=KEEP)
    for step in range(30):
        survivor(event("survivor", step))
    check(tmp_path, [*accepted, *(event("survivor", step).id for step in range(30))])
    ages = sorted(int(name.suffix[1:]) for name in event_files(tmp_path) if name != path)
    assert ages == list(range(1, len(ages) + 1))  # no gap is left behind, and no empty file
    assert all(name.stat().st_size for name in event_files(tmp_path))
