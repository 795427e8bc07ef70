"""The command `asd ingest`: what it prints, where events go, and how it ends."""

import fcntl
import os
import signal
import subprocess
import sys

import pytest

from asd.cli import main
from asd.exporters.run_files.event_log import read_events
from tests.support.waiting import wait_for

LINE = (
    "[{}] AICPU(1,aicpu_scheduler):2025-02-25-18:43:29.395.610 [silent_check_v2.cc:136][Compute{}Error][tid:2]"
    "SilentCheck get {} Error, input message: val = [{}], pre_val = [0.1], min_val = [0.1], max_val = [0.2], "
    "step = [{}], c_min_steps = [100], c_thresh_l1 = [1000000.0], c_coeff_l1 = [100000.0] npu_asd_detect = [1].\n"
)


def first(step, value="nan"):
    return LINE.format("ERROR", "L1", "L1", value, step)


def second(step):
    return LINE.format("WARNING", "L2", "L2", "20000.0", step)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "device-4" / "device-1_20250225184310213.log"
    path.parent.mkdir()
    return path


def written(run_dir):
    return read_events(run_dir / "events-ingest.jsonl")


def test_once_reads_what_is_there_and_says_how_much(tmp_path, log, capfd):
    log.write_text("noise\n" + first(1) + second(2))
    assert main(["ingest", "--once", str(log), "--run-dir", "out"]) == 0
    out, err = capfd.readouterr()
    sentences = out.splitlines()
    assert [sentence.partition(":")[0] for sentence in sentences[:2]] == ["accuracy sensitivity feature abnormal"] * 2
    assert sentences[2].startswith("1 files, 3 lines, 2 new events (1 first level, 1 ")
    assert err == ""
    events = written(tmp_path / "out")
    assert [(event.step, event.device, event.run) for event in events] == [(n, "Ascend:4", "ingest") for n in (1, 2)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_last_line_without_a_line_feed_is_read_once_in_any_unicode(tmp_path, log, steps, encoding, ending, capfd):
    text = ending.join(first(step).strip() for step in range(1, steps + 1))
    for content in (text, text, text + ending, text + ending + first(9)):
        log.write_bytes(content.encode(encoding))
        assert main(["ingest", "--once", str(log), "--run-dir", "out"]) == 0
    assert capfd.readouterr().err == ""
    assert [event.step for event in written(tmp_path / "out")] == [*range(1, steps + 1), 9]


def test_a_file_that_holds_the_code_and_of_which_nothing_came_is_told(tmp_path, log, capfd):
    log.write_text(f"a note: node 7 shows 80818c00\n{first(1)}")
    other = tmp_path / "notes.log"
    other.write_text("somebody wrote: 80818C00 on card 3\n")
    assert main(["ingest", "--once", str(log), str(other), "--run-dir", "out"]) == 0
    assert capfd.readouterr().err.startswith(f"asd ingest: {other} contains 80818C00")


def test_the_host_is_an_option_and_the_folder_comes_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("ASD_RUN_DIR", "o")
    (tmp_path / "worker_0.log").write_text(first(1))
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # as of a user without a home
    main(["ingest", "--once", "--host", "h9"])
    (event,) = written(tmp_path / "o")
    assert (event.run, event.host) == ("ingest", "h9")


def test_a_second_one_on_the_same_folder_is_told_so(tmp_path, log, capfd):
    log.write_text(first(1))
    (tmp_path / "out").mkdir()
    with (tmp_path / "out" / "ingest.lock").open("w") as file:
        file.write("4711")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        assert main(["ingest", "--once", str(log), "--run-dir", "out"]) == 1
    assert "(process 4711)" in capfd.readouterr().err
    assert main(["ingest", "--once", str(log), "--run-dir", "out"]) == 0


@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_corrupt_cursor_is_one_sentence(tmp_path, log, capfd, content):
    log.write_text(first(1))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "ingest.cursor.json").write_text(content)
    assert main(["ingest", "--once", str(log), "--run-dir", "out"]) == 1
    out, err = capfd.readouterr()
    assert (out, err.count("\n"), err[:5], "cursor" in err) == ("", 1, "asd: ", True)


def test_what_cannot_be_read_is_counted_and_said(tmp_path, log, capfd):
    log.write_bytes(first(1).encode() + b"x" * 2_000_000 + b"\n" + os.urandom(1000).replace(b"\n", b"") + b"\n")
    os.mkfifo(tmp_path / "pipe.log")
    paths = [str(log), str(tmp_path / "pipe.log")]
    assert main(["ingest", "--once", *paths, "--run-dir", "out"]) == 0
    out, err = capfd.readouterr()
    assert "\n2 files, 2 lines, 1 new events" in out
    pipe, long = err.splitlines()
    assert (pipe.startswith(f"asd ingest: {tmp_path}/pipe.log: "), long[:19]) == (True, "asd ingest: 1 lines")


def start(*options, **pipes):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **pipes}
    return subprocess.Popen([sys.executable, "-m", "asd", "ingest", *options], **pipes)


def test_it_follows_logs_that_are_not_there_yet_until_it_is_stopped(tmp_path, log):
    with start(str(log), "--run-dir", "out") as process:
        assert "nothing is at" in process.stderr.readline()
        log.write_text(first(1))
        assert "step=1" in process.stdout.readline()
        with log.open("a") as file:
            file.write(long := "x" * 2_000_000 + "\n")
        assert "1 lines were too long" in process.stderr.readline()  # which is not said again
        log.rename(log.with_name(log.name + ".1"))
        log.write_text(long + second(2))
        assert "step=2" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert out.startswith("2 files, 2 lines, 2 new events")


def test_where_what_it_prints_finds_no_room_each_event_is_written_once(tmp_path, log):
    os.mkfifo(log.with_name("pipe.log"))  # which it complains about
    log.write_text(first(1) + second(2))
    with open("/dev/full", "w") as full, start(log.parent, "--run-dir", "out", stdout=full, stderr=full) as process:
        wait_for(lambda: (tmp_path / "out/ingest.cursor.json").exists())
        process.terminate()
    assert process.returncode == 0
    assert [event.step for event in written(tmp_path / "out")] == [1, 2]


def test_when_nobody_reads_what_it_prints_it_ends_and_doubles_nothing(tmp_path, log):
    log.write_text(first(1))
    with start(str(log), "--run-dir", "out") as process:
        process.stdout.close()
        assert process.wait(20) == 141
        assert process.stderr.read() == ""
    assert main(["ingest", "--once", str(log), "--run-dir", "out"]) == 0
    assert [event.step for event in written(tmp_path / "out")] == [1]
