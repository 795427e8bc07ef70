"""A new field of an event or its origin is kept wherever events are, and what was written without it is read."""

import subprocess
import sys
from pathlib import Path

import asd

PROGRAM = """
import sys, types
from pathlib import Path
import asd

def load(name, before, after):
    path = Path(asd.__file__).parent / f"{name}.py"
    text = path.read_text()
    assert text.count(before) == 1
    module = sys.modules[f"asd.{name}"] = types.ModuleType(f"asd.{name}")
    module.__file__ = str(path)
    exec(compile(text.replace(before, before + after), path, "exec"), module.__dict__)

old = sys.argv[2:] == ["old"]
if not old:
    load("origin", "    host: Name\\n    device: Name\\n", "    chassis: Name = ''\\n")
    load("event", "    key: Name = \\"\\"\\n", "    chosen: tuple[Count, ...] = ()\\n")

from asd.event import Event
from asd.origin import Origin
from asd.exporters.prometheus.event_journal import EventJournal
from asd.exporters.run_files.event_log import EventLog, read_events
from asd.handler import FaultHandler, NoIsolator, Policy, Store
from asd.exporters.ledger import Ledger
from asd.verdict import Level

folder = Path(sys.argv[1])
new = {} if old else {"chosen": (3, 4)}
event = Event(
    origin=Origin("r", 0, "h", "Ascend:0", **({} if old else {"chassis": "SN7"})), step=1, checkpoint="a", value=1e7,
    limits=(1e6,), level=Level.ERROR, kind="replay", verdict="persistent", rule="t", feature="l2", reason="",
    refused=True, time=1e9, **new,
)

def is_whole(found):
    return found == event and (old or (found.origin.chassis, found.chosen) == ("SN7", (3, 4)))

def handler():
    store = Store(folder / "h.sqlite")
    return FaultHandler(store, Policy(), NoIsolator(store), told.append, lambda: 1e9)

assert is_whole(Event.from_json(event.to_json()))
if not old:  # what was written before
    for text in (folder / "e.jsonl").read_text().splitlines():
        assert Event.from_json(text).chosen == () and Event.from_json(text).origin.chassis == ""
    assert " chosen=(3, 4) event=" in event.sentence()
    told = []
    before = handler()
    assert before.handle(Event.from_json(text)).action == "duplicate"
    assert Event.from_json(before.store.db.execute("SELECT event FROM cases").fetchone()[0]).chosen == ()
    before.close()
    for file in folder.iterdir():
        file.unlink()
EventLog(folder / "e.jsonl")(event)
assert is_whole(list(read_events(folder / "e.jsonl"))[-1])
journal = EventJournal(folder / "j.sqlite")
journal.add([event])
assert is_whole(Event.from_json(journal.page([], 9).events[-1]))
journal.close()
told = []
now = handler()
assert now.handle(event).action == "isolated"
now.close()
now = handler()
assert is_whole(Event.from_json(now.store.db.execute("SELECT event FROM strike").fetchone()[0]))
assert old or (told[0].origin.chassis, told[0].chosen) == ("SN7", (3, 4))
ledger = Ledger()
ledger.add(event)
assert list(ledger.counts()) == [event.origin]
print("done")
"""


def test_a_made_up_field_survives_everywhere_and_what_was_written_without_it_is_read(tmp_path):
    environ = {"PYTHONPATH": str(Path(asd.__file__).parents[1])}
    for more in (["old"], []):
        command = [sys.executable, "-c", PROGRAM, tmp_path, *more]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
        assert (done.stdout, done.stderr) == ("done\n", "")
