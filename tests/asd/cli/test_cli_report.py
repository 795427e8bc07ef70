"""`asd report`: where it reads, what it writes, and which exit codes it gives."""

import json
from pathlib import Path

import pytest

from asd import Config
from asd.cli import main
from asd.exporters.run_files.event_log import EventLog
from asd.judge.monitor import Monitor
from asd.origin import Origin
from asd.rules.reading import Reading
from asd.rundir.names import event_file, status_file

LEAD = "1 first-level anomaly on node7 device Ascend:3 (rank 3), at step 5"


@pytest.fixture
def run_dir(tmp_path):
    folder = tmp_path / "asd_run"
    config = Config(protection="document", enable=1, run_dir=str(folder))
    monitor = Monitor(config, Origin("run1", 3, "node7", "Ascend:3"), [EventLog(event_file(folder, 3))])
    monitor.begin()
    for step in range(1, 6):
        value = 5e8 if step == 5 else 1.0
        monitor.judge(step, [Reading("a", value)], refused=step == 5)
    monitor.end()
    status_file(folder, 3).write_text(monitor.status.to_json())
    return folder


def test_it_writes_the_report_into_the_folder_of_the_run_and_says_so(run_dir, capsys):
    assert main(["report", str(run_dir)]) == 0
    out, err = capsys.readouterr()
    lead, path = out.splitlines()
    assert (lead[: len(LEAD)], path, err) == (LEAD, f"{run_dir}/report.html", "")
    page = (run_dir / "report.html").read_text()
    assert page.startswith("<!DOCTYPE html>\n<html")
    assert LEAD in page


def test_it_writes_where_it_is_told_and_replaces_what_is_there(run_dir, tmp_path, capsys):
    target = tmp_path / "new folder" / "x.html"
    for _ in range(2):
        assert main(["report", str(run_dir), "-o", str(target)]) == 0
        assert LEAD in target.read_text()
        target.write_text("old")
    assert not (run_dir / "report.html").exists()
    assert [path.name for path in target.parent.iterdir()] == ["x.html"]


def test_json_is_the_same_for_programs_and_writes_nothing(run_dir, capsys):
    assert main(["report", str(run_dir), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["verdict"]["tone"], said["verdict"]["lead"][: len(LEAD)]) == ("bad", LEAD)
    assert (said["events"]["first"], said["checks"]) == (1, 5)
    assert not (run_dir / "report.html").exists()
    assert main(["report", str(run_dir), "--json", "-o", "x.html"]) == 0
    assert LEAD in Path("x.html").read_text()
