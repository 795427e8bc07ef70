"""`asd devices`: shows every device, gives one back, forgets what one did."""

import json
import subprocess
import sys
import time

import pytest

from asd.cli import main
from asd.errors import IsolationError
from asd.exporters.run_files.event_log import EventLog, read_events
from asd.handler import FaultHandler, NoIsolator, Policy, Store
from asd.handler.db.store import events_file, state_file
from asd.isolator import Device
from asd.rundir.names import event_file
from tests.support.events import event_maker, growing

WARNING = """\
Health Status                  : Warning
Error Code                     : 80818C00
Error Information              : node type=SoC, sensor type=Check Sensor, event state=check fail
"""
OK = """\
Health Status                  : OK
Error Code                     : NA
Error Information              : NA
"""


@pytest.fixture(autouse=True)
def _run_dir(monkeypatch, tmp_path):
    monkeypatch.setenv("ASD_RUN_DIR", str(tmp_path))


event = event_maker(rank=3, device="Ascend:3", value=growing, time=lambda step: time.time(), evidence="evidence/1")


def fill(tmp_path, *events):
    """A store as a handler leaves it."""
    store = Store(state_file(tmp_path))
    handler = FaultHandler(store, Policy(), NoIsolator(store), EventLog(events_file(tmp_path)))
    handler.handle_many(events)
    handler.know([Device("node7", "Ascend:5", 5)])
    handler.close()


def bad(step=1, **changes):
    return event(step, kind="replay", verdict="persistent", **changes)


def test_the_table_has_every_device(tmp_path, capsys):
    fill(tmp_path, event(1), bad(1), event(2, device="Ascend:4", rank=4))
    assert main(["devices"]) == 0
    out = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in out[:4]]
    assert " ".join(rows[0]) == "HOST DEVICE RANK HEALTH STRIKES VERDICTS STATE BY SINCE STRESS TEST EVIDENCE"
    assert rows[1][:9] == ["node7", "Ascend:3", "3", "Warning", "1/3", "1", "persistent", "isolated", "none"]
    assert rows[2] == ["node7", "Ascend:4", "4", "Warning", "1/3", "-", "in", "use", "-", "-", "-", "evidence/1"]
    assert rows[3] == ["node7", "Ascend:5", "5", "OK", "0/3", "-", "in", "use", "-", "-", "-", "-"]
    assert [line.partition(": ")[0] for line in out[4:]] == ["Ascend:3 on node7"]


def test_health_prints_the_three_fields_of_each_device(tmp_path, capsys):
    fill(tmp_path, event(1))
    assert main(["devices", "list", "node7", "Ascend:9"]) == 2
    assert capsys.readouterr().err.startswith("asd: HOST DEVICE has the value 'node7 Ascend:9'")
    assert main(["devices", "--health"]) == 0
    assert capsys.readouterr().out == f"node7 Ascend:3\n{WARNING}node7 Ascend:5\n{OK}"
    assert main(["devices", "list", "node7", "Ascend:5", "--health"]) == 0
    assert capsys.readouterr().out == OK


def test_a_device_is_released_and_the_recovery_is_told(tmp_path, capsys):
    fill(tmp_path, bad(1))
    for action, said in (("drop", "nothing"), ("release", "released")):
        assert main(["devices", action, "node7", "Ascend:3", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["action"] == said
    assert [told.kind for told in read_events(events_file(tmp_path))] == ["isolation", "recovery"]
    assert main(["devices", "list", "node7", "Ascend:3", "--health"]) == 0
    assert capsys.readouterr().out == OK
    assert main(["devices", "release", "node7", "Ascend:3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["action"] == "nothing"


def test_what_is_released_is_told_where_its_handler_tells_and_a_replaced_one_is_told_apart(tmp_path, capsys):
    home, state = tmp_path / "home", tmp_path / "home/h.sqlite"
    EventLog(event_file(home, 3))(bad(1))
    main(["handler", "--once", "--run-dir", str(home), "--state", str(state)])
    main(["devices", "release", "node7", "Ascend:3", "--state", str(state)])
    assert [told.kind for told in read_events(events_file(home))] == ["isolation", "recovery"]
    assert not events_file(tmp_path).exists()
    main(["devices", "repaired", "node7", "Ascend:3", "--serial", "SN2", "--state", str(state)])
    with Store(state).transaction() as db:
        db.execute("INSERT OR REPLACE INTO meta VALUES ('breaker_opened', '1700000000.0')")
    capsys.readouterr()
    main(["devices", "--state", str(state)])
    out = capsys.readouterr().out
    assert "Ascend:3 (no serial)" in out
    assert "Ascend:3 (SN2)" in out
    assert "2023-11-14T22:13:20+00:00" in out


def test_a_handler_at_work_does_the_release(tmp_path, capsys):
    fill(tmp_path, bad(1))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    handler = subprocess.Popen([sys.executable, "-m", "asd", "handler"], **pipes)
    assert "no run was found" in handler.stderr.readline()  # it has looked once
    assert main(["devices", "release", "node7", "Ascend:3"]) == 0
    handler.terminate()
    out, _ = handler.communicate(timeout=20)
    assert out.startswith("released: Ascend:3 on node7: ")
    assert [told.kind for told in read_events(events_file(tmp_path))] == ["isolation", "recovery"]


def test_a_repair_of_what_is_not_out_forgets_strikes_and_verdicts(tmp_path, capsys):
    fill(tmp_path, event(1), event(2), event(2, kind="replay", verdict="transient"))
    assert main(["devices", "repaired", "node7", "Ascend:3"]) == 0
    assert capsys.readouterr().out.startswith("Ascend:3 on node7: ")
    assert main(["devices", "--json"]) == 0
    (found, _) = json.loads(capsys.readouterr().out)
    assert (found["strikes"], found["verdicts"]["transient"], found["health"]["Health Status"]) == (0, 0, "OK")


def test_a_replaced_device_is_told_and_says_what_gives_it_back(tmp_path, capsys):
    fill(tmp_path, bad(1))
    assert main(["devices", "repaired", "node7", "Ascend:3", "--serial", "SN2"]) == 0
    assert "`asd selftest --device Ascend:3 --seconds 60 --run-dir D`" in capsys.readouterr().out
    assert main(["devices", "repaired", "node7", "Ascend:5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["action"] == "cleared"


def test_without_a_database_it_says_what_makes_one(tmp_path, capsys):
    assert main(["devices"]) == 1
    assert capsys.readouterr().err.startswith(f"asd: {tmp_path}/handler.sqlite ")
    assert not state_file(tmp_path).exists()


def test_a_release_without_a_handler_does_nothing_about_other_devices(tmp_path, capsys):
    strikes = [event(step, rank=4, device="Ascend:4") for step in (1, 2, 3)]
    fill(tmp_path, bad(1), bad(1, rank=5, device="Ascend:5"), *strikes)
    assert main(["devices", "release", "node7", "Ascend:3"]) == 0
    told = [(each.kind, each.device) for each in read_events(events_file(tmp_path))]
    assert told == [("isolation", "Ascend:3"), ("isolation", "Ascend:5"), ("recovery", "Ascend:3")]


class Refusing:
    """An engine without the right to do anything."""

    name = "none"

    def held(self, device):
        raise IsolationError(device, self.name, "the API server answered 403", retry=False)


def test_a_refusal_is_shown_with_the_next_try_until_a_person_drops_the_verdict(tmp_path, capsys):
    store = Store(state_file(tmp_path))
    FaultHandler(store, Policy(), Refusing(), EventLog(events_file(tmp_path))).handle(bad(1))
    store.close()
    assert main(["devices"]) == 0
    assert "the API server answered 403" in capsys.readouterr().out.splitlines()[-1]
    assert main(["devices", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["state"], found["attempts"], found["next_try"][:2]) == ("isolating", 1, "20")
    assert (found["device"], found["health"]["Health Status"]) == ("Ascend:3", "Warning")
    for action in ("dropped", "nothing"):
        assert main(["devices", "drop", "node7", "Ascend:3", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["action"] == action
        assert main(["devices", "list", "node7", "Ascend:3", "--health"]) == 0
        assert capsys.readouterr().out == OK


@pytest.mark.parametrize("options", [[], ["--health"]])
def test_no_control_character_of_an_event_reaches_the_terminal(tmp_path, capsys, options):
    fill(tmp_path, bad(1, host="n\x1b[2J7", run="r\x1b]0;x\x07", evidence="e\x9bm"))
    assert main(["devices", *options]) == 0
    out = capsys.readouterr().out
    assert "n\\x1b[2J7" in out
    assert all(letter.isprintable() or letter == "\n" for letter in out)
