"""`asd events`: every event of a run once, in order, for people and for programs."""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from asd import Level
from asd.cli import main
from asd.exporters.run_files.event_log import EventLog
from tests.support.events import event_maker

NOW = 1_800_000_000.0


event = event_maker(checkpoint="model.norm_out", value=2.5e7, reason="too large", time=lambda step: NOW + step)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def run_dir(tmp_path):
    """Three ranks, of which two were rotated, and what was read from the vendor's logs."""
    for rank in range(3):
        log = EventLog(tmp_path / f"events-rank{rank}.jsonl", max_bytes=1 if rank else 1 << 20)
        for step in range(1, 4):
            log(event(step, rank=rank, device=f"Ascend:{rank}", level=Level(3 - step), time=NOW + 10 * step + rank))
    EventLog(tmp_path / "events-ingest.jsonl")(event(9, rank=-1, device="unknown", kind="problem", time=NOW + 15))
    return tmp_path


def shown(capsys, *arguments):
    """The events that were printed, as (rank, step)."""
    assert main(["events", "--json", *map(str, arguments)]) == 0
    data = [json.loads(line)["data"] for line in capsys.readouterr().out.splitlines()]
    return [(each["rank"], each["step"]) for each in data]


def test_all_files_are_read_in_the_order_of_time(run_dir, capsys):
    steps = {step: [(rank, step) for rank in range(3)] for step in (1, 2, 3)}
    assert shown(capsys, "--run-dir", run_dir) == [*steps[1], (-1, 9), *steps[2], *steps[3]]
    main(["events", "--json", "--run-dir", str(run_dir), "--rank", "0"])
    assert capsys.readouterr().out == (run_dir / "events-rank0.jsonl").read_text()


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        (["--rank", "-1"], [(-1, 9)]),
        (["--rank", "0", "--rank", "2", "--level", "second"], [(0, 2), (2, 2)]),
        (["--device", "Ascend:2"], [(2, 1), (2, 2), (2, 3)]),
        (["--level", "first"], [(0, 1), (1, 1), (2, 1), (-1, 9)]),
        (["--kind", "problem"], [(-1, 9)]),
    ],
)
def test_only_what_is_asked_for_is_shown(run_dir, capsys, arguments, steps):
    assert shown(capsys, "--run-dir", run_dir, *arguments) == steps


def test_an_event_that_stands_in_two_files_is_shown_once(run_dir, capsys):
    text = (run_dir / "events-rank0.jsonl").read_text()
    (run_dir / "events-rank7.jsonl").write_text("\n" + text)
    assert len(shown(capsys, "--run-dir", run_dir)) == 10


def test_for_people_it_is_an_aligned_table(tmp_path, capsys):
    log = EventLog(tmp_path / "events-rank0.jsonl")
    log(event(7, evidence="asd_run/evidence/run1/rank0-step7"))
    log(event(11, level=Level.NORMAL, kind="replay", verdict="transient", refused=False, limits=(), value=1.0))
    log(event(0, level=Level.NORMAL, kind="problem", checkpoint="", rank=-1, time=NOW + 12, reason="disk full"))
    assert main(["events", "--run-dir", str(tmp_path)]) == 0
    head, first, replay, problem = [re.split("  +", line) for line in capsys.readouterr().out.splitlines()]
    assert head == ["time", "level", "kind", "rank", "device", "step", "checkpoint", "value", "limit", "what"]
    assert first[:-4] == ["2027-01-15 08:00:07.000", "first", "anomaly", "0", "Ascend:0", "7"]
    assert first[-1].endswith("asd_run/evidence/run1/rank0-step7")
    assert (replay[-2], problem[3:8]) == ("-", ["-", "Ascend:0", "-", "-", "-"])


def test_no_name_breaks_a_line_or_reaches_the_terminal_as_a_command(tmp_path, capsys):
    EventLog(tmp_path / "events-rank0.jsonl")(
        event(checkpoint="two\nlines\x1b[2J", reason="特征值\u2028", device=os.fsdecode(b"\xff"))
    )
    assert main(["events", "--run-dir", str(tmp_path)]) == 0
    _head, line = capsys.readouterr().out.splitlines()
    assert r"two\nlines\x1b[2J" in line
    assert r"特征值\u2028" in line
    assert r"\udcff" in line


def test_what_is_no_event_is_said_once(run_dir, capsys):
    with (run_dir / "events-rank0.jsonl").open("ab") as file:
        file.write(b'junk\n{"torn": \n\n\xff\xfe\n{}\n' + b"x" * 2_000_000 + b"\n")
    EventLog(run_dir / "events-rank0.jsonl")(event(99))
    assert main(["events", "--run-dir", str(run_dir), "--json"]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 11
    assert (printed.err[:12], printed.err.count("\n")) == ("asd: 5 lines", 1)


@pytest.mark.parametrize(("place", "code"), [("empty", 0), ("other", 0), ("missing", 1), ("file", 1)])
def test_nothing_to_show_is_one_sentence_that_names_the_folder(tmp_path, capsys, place, code):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    EventLog(tmp_path / "other" / "events-rank0.jsonl")(event())
    assert main(["events", "--run-dir", str(tmp_path / place), "--rank", "5"]) == code
    out, err = capsys.readouterr()
    assert (out, str(tmp_path / place) in err, err.count("\n")) == ("", True, 1)


COMMAND = (sys.executable, "-m", "asd", "events", "--run-dir")


def read_lines(process, count):
    """The data of the next events, as they come."""
    lines = []
    while len(lines) < count:
        assert select.select([process.stdout], [], [], 30)[0], lines
        lines.append(json.loads(process.stdout.readline())["data"])
    return lines


def test_following_shows_new_events_at_once_through_rotation_and_new_files_until_it_is_interrupted(tmp_path):
    log = EventLog(tmp_path / "events-rank0.jsonl", max_bytes=1)
    log(event(1))
    process = subprocess.Popen(
        [*COMMAND, str(tmp_path), "--follow", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    )
    with process, contextlib.ExitStack() as stack:
        stack.callback(process.kill)
        read = read_lines(process, 1)
        for step in (2, 3):
            log(event(step))
        read += read_lines(process, 2)
        with log.path.open("a") as file:
            file.write("junk\n")
        EventLog(tmp_path / "events-rank1.jsonl")(event(4, rank=1))
        read += read_lines(process, 1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert [(each["rank"], each["step"]) for each in read] == [(0, 1), (0, 2), (0, 3), (1, 4)]
    assert (process.returncode, out) == (130, b"")
    assert [line[:11] for line in err.decode().splitlines()] == ["asd: 1 line", "asd: interr"]


def test_a_locale_without_chinese_ends_nothing_and_json_stays_utf8(tmp_path):
    EventLog(tmp_path / "events-rank0.jsonl")(event(reason="特征值"))

    def printed(*options):
        environ = {**os.environ, "PYTHONIOENCODING": "ascii"}
        command = [*COMMAND, str(tmp_path), *options]
        return subprocess.run(command, capture_output=True, env=environ, timeout=60, check=True).stdout

    assert rb"\u7279\u5f81\u503c" in printed()
    assert json.loads(printed("--json"))["data"]["reason"] == "特征值"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_output_is_no_traceback(run_dir, closed):
    command = f'exec "{sys.executable}" -m asd events --run-dir "{run_dir}" {closed}'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
