"""Whole jobs under `asd run --ranks`: real processes, with a small launcher in the place of msrun."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from asd.supervisor.attempt_watch import AttemptWatch
from asd.supervisor.record import Attempt
from tests.support.tables import quick
from tests.support.waiting import wait_for

SPEC = importlib.util.spec_from_file_location("supervised_job", Path(__file__).with_name("supervised_job.py"))
supervised_job = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(supervised_job)
ALL = "[1, 2, 3, 4, 5, 6, 7, 8]"
TWO, SPARE = ("--ranks", "2"), ("--ranks", "2", "--spares", "1")
SLOW = pytest.mark.slow


@pytest.fixture
def place(tmp_path):
    work = supervised_job.Workplace(tmp_path)
    yield work
    assert work.processes() == {}, "something was left behind"


def made(out):
    """What the ranks have made in the end, and on which devices."""
    return sorted(line for line in out.splitlines() if "made" in line)


def isolations(place):
    path = place.folder / "asd_run" / "events-handler.jsonl"
    return [json.loads(line)["data"] for line in path.read_text().splitlines()] if path.exists() else []


PERSISTENT = {"what": "anomaly", "step": 6, "device": 1, "verdict": "persistent"}
UNCLEAR = {**PERSISTENT, "verdict": "undetermined", "attempts": [2]}
EVERYWHERE = {"what": "anomaly", "step": 3, "rank": 1, "verdict": "persistent"}
CRASH = {"what": "exit", "step": 3, "attempts": [2], "code": 3}
ONCE = {"what": "exit", "step": 7, "attempts": [1], "code": 3}
PROCESSES = [("keeper.py", 2), ("bin/msrun", 1), ("worker.py", 1), ("bin/training", 1)]
KILLED = {"what": "signal", "number": 9, "step": 3, "rank": 0}


@pytest.mark.parametrize(
    ("faults", "plan", "options", "code", "attempts", "out"),
    quick(
        4,
        [
            ([PERSISTENT, CRASH], {"verified": 2}, SPARE, 0, [[0, 1], [0, 2], [0, 2]], [1]),
            ([PERSISTENT], {}, TWO, 16, [[0, 1]], [1]),  # too few devices are left
            ([{**PERSISTENT, "verdict": "undetermined"}], {}, SPARE, 17, [[0, 1]] * 2, []),  # it may be the data
            ([KILLED], {}, (*TWO, "--max-restarts", "1"), 1, [[0, 1]] * 2, []),
            ([], {}, TWO, 0, [[0, 1]], []),
            ([{**PERSISTENT, "verdict": "transient"}], {}, SPARE, 0, [[0, 1]] * 3 + [[0, 2]], [1]),  # three strikes
            ([{"what": "anomaly", "step": 6, "rank": 0, "verdict": "software"}], {}, SPARE, 17, [[0, 1]] * 2, []),
            ([UNCLEAR, {**UNCLEAR, "step": 3, "attempts": [1]}], {}, SPARE, 0, [[0, 1], [0, 1], [0, 2]], []),
            ([{"what": "anomaly", "step": 6, "device": 1}], {}, SPARE, 0, [[0, 1], [0, 2]], []),  # a suspect makes room
            ([{"what": "anomaly", "step": 6, "rank": 1}], {"same": True}, SPARE, 17, [[0, 1], [0, 2]], []),
            ([{"what": "anomaly", "step": 6, "device": 0}], {"same": True}, TWO, 17, [[0, 1]] * 2, []),
            ([{"what": "anomaly", "step": 6, "device": 0}], {"same": True}, ("--ranks", "1"), 17, [[0]] * 2, []),
            ([PERSISTENT], {"host": "alias"}, SPARE, 0, [[0, 1], [0, 2]], [1]),  # the node's name in the training
            ([EVERYWHERE], {}, (*TWO, "--spares", "4"), 17, [[0, 1], [0, 2], [0, 3]], [1, 2]),  # the breaker opens
            ([{"what": "exit", "code": 2, "step": 1}], {}, TWO, 1, [[0, 1]] * 2, []),  # never makes a step
            ([{"what": "hang", "step": 4, "attempts": [1]}], {}, (*TWO, "--hang-timeout", "5"), 0, [[0, 1]] * 2, []),
        ],
    ),
)
def test_what_goes_wrong_decides_on_devices_and_exit_code(place, faults, plan, options, code, attempts, out):
    place.plan(*faults, **plan)
    found, printed, err = place.run(*options)
    assert (found, place.record()["done"]) == (code, code == 0), err
    assert [attempt["devices"] for attempt in place.record()["attempts"]] == attempts
    assert [(event["device"], event["kind"]) for event in isolations(place)] == [(f"CPU:{n}", "isolation") for n in out]
    if plan.get("verified"):  # and not from that of step 4, after the crash neither
        assert [attempt["resume_step"] for attempt in place.record()["attempts"]] == [0, 2, 2]
    used = ",".join(map(str, attempts[-1]))
    done = [f"rank{rank}: made {ALL} on {device} of {used}" for rank, device in enumerate(attempts[-1])]
    assert made(printed) == done or code
    assert [line.partition(" ")[0] for line in err.splitlines()] == ["asd:"] * len(err.splitlines())
    if code == 16:
        assert f"{place.folder}/asd_run/kept/job-step4.ckpt" in err.splitlines()[-1]
        assert place.run(*options)[0] == code  # it stays so
        place.plan()
        found, printed, _ = place.run(*options, ASD_NODE="node8")  # where the device of that number is another
        assert (found, made(printed)[1]) == (0, f"rank1: made {ALL} on 1 of 0,1")
        assert place.run(*options, ASD_RUN="another")[0] == code


@SLOW
def test_a_training_that_prints_before_its_first_judged_step_or_has_long_steps_does_not_hang(place):
    place.plan(unwatched=3, pauses={"1": 2.5, "2": 2.5, "4": 2.5, "6": 6})
    code, _out, err = place.run(*TWO, "--hang-timeout", "4")
    assert (code, len(place.record()["attempts"])) == (0, 1), err
    place.plan({"what": "hang", "step": 1})
    code, _out, err = place.run(*TWO, "--hang-timeout", "2", "--max-restarts", "0", ASD_RUN="silent")
    assert (code, " for 2 s; 0 restarts" in err) == (1, True)


@pytest.mark.parametrize(
    ("folder", "pauses", "hangs"), [("", [0.1] * 12, True), ("", [0.1, 1.5], False), ("loop", [0.1] * 12, False)]
)
def test_a_supervisor_that_was_stopped_or_can_not_read_its_folder_sees_no_hang(tmp_path, folder, pauses, hangs):
    (tmp_path / "loop").symlink_to("loop")
    watch = AttemptWatch(tmp_path / folder, Attempt("job", [0]), tmp_path, 1.0, print)
    for pause in pauses:
        watch.poll(None, "")
        time.sleep(pause)
    assert (watch.poll(None, "") is not None) == hangs


def test_a_job_goes_on_when_nobody_reads_what_it_prints_any_more(place):
    place.plan({**CRASH, "attempts": [1]})
    with place.start(*TWO) as process:
        process.stdout.close()
        process.stderr.close()
    assert (process.returncode, place.record()["done"]) == (0, True)


def asd(place, *words):
    """A command beside the job, in its folder."""
    how = {"text": True, "capture_output": True, "timeout": 60, "check": False}
    return subprocess.run([sys.executable, "-m", "asd", *words], cwd=place.folder, env=place.environ, **how)


def test_asd_devices_shows_the_devices_of_the_job_and_gives_one_back(place):
    place.plan({"what": "anomaly", "step": 3, "device": 1, "verdict": "persistent"})
    assert place.run(*SPARE)[0] == 0
    first, second = place.record()["attempts"]
    kept = place.folder / "asd_run" / "kept" / "job-step2.ckpt"
    assert (first["resume_from"], second["resume_from"], second["resume_step"]) == ("", str(kept), 2)
    (event,) = isolations(place)
    assert (event["rank"], event["step"], event["verdict"]) == (1, 3, "persistent")
    listed = {each["device"]: each for each in json.loads(asd(place, "devices", "--json").stdout)}
    assert (listed["CPU:1"]["state"], listed["CPU:1"]["isolated_by"]) == ("isolated", "local")
    assert listed["CPU:1"]["verdicts"]["persistent"] == 1
    assert {name for name, each in listed.items() if each["health"]["Health Status"] == "OK"} == {"CPU:0", "CPU:2"}
    done = asd(place, "devices", "release", "here", "CPU:1")
    assert done.returncode == 0
    assert [event["kind"] for event in isolations(place)] == ["isolation", "recovery"]
    place.plan()
    code, out, _ = place.run(*SPARE, ASD_RUN="another")
    assert code == 0
    assert made(out)[1] == f"rank1: made {ALL} on 1 of 0,1"


@SLOW
def test_a_device_is_given_back_while_the_job_runs(place):
    place.plan({"what": "anomaly", "step": 3, "device": 1, "verdict": "persistent", "attempts": [1]}, pause=0.5)
    with place.start(*SPARE) as process:
        wait_for(lambda: isolations(place))
        wait_for(lambda: (place.folder / "asd_run" / "logs" / "job+2").exists())
        done = asd(place, "devices", "release", "here", "CPU:1")
        _, err = process.communicate(timeout=40)
    assert (process.returncode, done.returncode) == (0, 0), (err, done)
    assert [event["kind"] for event in isolations(place)] == ["isolation", "recovery"]


@pytest.mark.parametrize("then", quick(1, [{"what": "anomaly", "step": 7}, {"what": "exit", "step": 7, "code": 3}]))
def test_a_checkpoint_from_which_two_attempts_came_no_further_is_left_for_the_one_before(place, then):
    """As one with a NaN in it: whoever resumes from it raises in its first step, or can't even load it."""
    place.plan({**ONCE, "step": 8}, {**then, "resumed": 6})
    code, out, _err = place.run(*TWO)
    assert (code, len(made(out))) == (0, 2)
    assert [attempt["resume_step"] for attempt in place.record()["attempts"]] == [0, 6, 6, 4]


def test_a_damaged_checkpoint_is_skipped_with_a_sentence(place):
    place.plan({"what": "hang", "step": 7, "attempts": [1]})
    with place.start(*TWO) as process:
        kept = place.folder / "asd_run" / "kept"
        wait_for(lambda: (kept / "job-step6.ckpt.asd-manifest.json").exists())
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    (kept / "job-step6.ckpt").write_text("[1, 2, 3")
    code, out, err = place.run(*TWO)
    assert (code, f"{kept}/job-step6.ckpt" in err) == (0, True)
    assert place.record()["attempts"][-1]["resume_from"] == f"{kept}/job-step4.ckpt"
    assert made(out)[0] == f"rank0: made {ALL} on 0 of 0,1"


@pytest.mark.parametrize(("name", "code"), quick(2, [("TERM", 143), ("KILL", -9), ("INT", 130), ("HUP", 143)]))
def test_a_signal_ends_all_processes_and_the_next_start_goes_on(place, name, code):
    number = signal.Signals[f"SIG{name}"]
    place.plan(pause=0.2)
    with place.start(*TWO) as process:
        wait_for(lambda: (place.folder / "asd_run" / "kept" / "job-step4.ckpt.asd-manifest.json").exists())
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
    assert process.returncode == code
    if number != signal.SIGKILL:  # after which others end the processes
        assert number.name in err.splitlines()[-1]
        assert place.processes() == {}
    wait_for(lambda: place.processes() == {})
    assert not place.record()["done"]
    place.plan()
    done, out, err = place.run(*TWO)
    assert (done, [attempt["run"] for attempt in place.record()["attempts"]]) == (0, ["job", "job+2"])
    assert made(out)[0] == f"rank0: made {ALL} on 0 of 0,1"


@pytest.mark.parametrize("name", ["TERM", "KILL"])
def test_attempts_that_signals_end_before_their_first_step_say_nothing_about_their_checkpoint(place, name):
    place.plan({"what": "exit", "step": 5, "attempts": [1], "code": 3}, {"what": "hang", "step": 5})
    for number in (2, 3):
        with place.start(*TWO) as process:
            wait_for(lambda run=f"job+{number}": place.has_rank(1, run))
            process.send_signal(signal.Signals[f"SIG{name}"])
            process.communicate(timeout=20)
        wait_for(lambda: place.processes() == {})
        assert place.record()["attempts"][-1]["judged"] == (name == "TERM")
    place.plan()
    assert place.run(*TWO)[0] == 0
    assert [attempt["resume_step"] for attempt in place.record()["attempts"]] == [0, 4, 4, 4]


@pytest.mark.parametrize("command", quick(1, [["sh", "-c", "training; true"], ["training"]]))
def test_a_rank_that_saves_at_a_signal_to_all_processes_outlives_those_that_do_not(place, command):
    place.plan(heed=[signal.SIGTERM], heeding=[0], pause=0.2)
    with place.start(*TWO, command=command, PATH=f"{place.folder}/bin:{os.environ['PATH']}") as process:
        wait_for((place.folder / "asd_run" / "kept" / "job-step2.ckpt.asd-manifest.json").exists)
        for pid in place.processes():  # as schedulers do
            os.kill(pid, signal.SIGTERM)
        out, _err = process.communicate(timeout=20)
    assert (process.returncode, [line[:6] for line in made(out)]) == (143, ["rank0:"])


def test_a_rank_that_starts_while_a_signal_ends_the_job_is_ended_too(place):
    late = "import os, time\nstart = os.fork\nif os.environ.get('RANK_ID') == '0':\n"
    (place.folder / "sitecustomize.py").write_text(f"{late}    os.fork = lambda: (time.sleep(1), start())[1]\n")
    place.plan({"what": "hang", "step": 1})
    with place.start(*TWO, PYTHONPATH=f"{place.folder}:{place.environ['PYTHONPATH']}") as process:
        wait_for(lambda: place.has_rank(1))
        process.terminate()
        process.communicate(timeout=15)
    assert process.returncode == 143


@SLOW
def test_ranks_that_ignore_sigterm_have_time_to_save_and_are_killed_at_the_second_signal(place):
    stubborn = ["sh", "-c", "trap '' TERM INT; sleep 300 & sleep 300; sleep 300"]
    with place.start(*TWO, command=stubborn, PATH=f"{place.folder}/bin:{os.environ['PATH']}") as process:
        wait_for(lambda: [*place.processes().values()].count(["sleep", "300"]) == 6)
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(7)
        process.terminate()
        process.communicate(timeout=20)
    assert process.returncode == 143


def test_signals_for_the_training_reach_each_rank_and_what_ends_after_one_is_not_done(place):
    sent = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)
    place.plan(heed=sent, pause=0.2)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    with place.start(*TWO) as process:
        signal.signal(signal.SIGHUP, before)
        wait_for((place.folder / "asd_run" / "kept" / "job-step2.ckpt.asd-manifest.json").exists)
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
            process.send_signal(number)
        for pid in place.processes().keys() - {process.pid}:  # the launcher too, as schedulers do
            os.kill(pid, signal.SIGUSR1)
            os.kill(pid, signal.SIGTERM)
        out, err = process.communicate(timeout=40)
    assert process.returncode == 0, err
    assert all(f"rank{rank}: got {number:d}" in out for number in sent for rank in (0, 1)), out
    assert not place.record()["done"]  # a scheduler that warned it starts the same command again


@pytest.mark.parametrize(("victim", "word"), quick(1, PROCESSES))
def test_when_any_process_is_killed_the_job_is_started_again(place, victim, word):
    place.plan(pause=0.2)
    with place.start(*TWO) as process:
        wait_for(lambda: (place.folder / "asd_run" / "kept" / "job-step2.ckpt.asd-manifest.json").exists())
        # The command line of each names those below it too, further behind.
        found = [pid for pid, words in place.processes().items() if words[word:] and words[word].endswith(victim)]
        os.kill(found[0], signal.SIGKILL)
        out, err = process.communicate(timeout=40)
    assert process.returncode == 0, err
    assert "job+2 begins" in err
    assert made(out)[0] == f"rank0: made {ALL} on 0 of 0,1"


@pytest.mark.parametrize(("node", "used"), quick(1, [("node8", "1 of 0,1"), ("here", "2 of 0,2")]))
def test_what_a_killed_supervisor_had_not_judged_yet_is_judged_by_the_next_for_its_own_node(place, node, used):
    place.plan({**PERSISTENT, "attempts": [1]})
    with place.start(*SPARE) as process:
        wait_for(lambda: place.has_rank(1))
        process.send_signal(signal.SIGSTOP)  # so that it does not see the verdict
        events = place.folder / "asd_run" / "events-rank1.jsonl"
        wait_for(lambda: events.exists() and "persistent" in events.read_text())
        process.kill()
        process.communicate(timeout=20)
    wait_for(lambda: place.processes() == {})
    code, out, _ = place.run(*SPARE, ASD_NODE=node)
    assert (code, isolations(place)[0]["host"]) == (0, "here")
    assert made(out)[1].endswith(f" on {used}")


def test_a_new_job_of_the_same_name_does_not_mix_up_what_the_last_one_left(place):
    place.plan({"what": "anomaly", "step": 6, "device": 1, "verdict": "persistent", "attempts": [1]})
    assert place.run(*SPARE)[0] == 0
    place.plan({"what": "exit", "code": 5, "step": 4, "attempts": [3]})
    code, out, _err = place.run(*SPARE)
    assert code == 0
    first, second = place.record()["attempts"]
    assert (first["run"], first["resume_from"], first["devices"]) == ("job+3", "", [0, 2])
    # Not from the last step of the job before.
    assert second["resume_from"] == f"{place.folder}/asd_run/kept/job+3-step2.ckpt"
    assert made(out)[0] == f"rank0: made {ALL} on 0 of 0,2"


@pytest.mark.parametrize("first", quick(1, ["job", "job+7"]))
def test_a_launch_with_another_number_goes_on_from_the_checkpoints_of_the_same_job(place, first):
    place.plan({"what": "exit", "code": 5, "step": 6})
    place.run(*TWO, "--max-restarts", "0", ASD_RUN=first)
    place.plan()
    assert place.run(*TWO, ASD_RUN="job+8")[0] == 0
    assert [attempt["resume_step"] for attempt in place.record()["attempts"]] == [0, 4]


def test_the_first_attempt_resumes_from_the_file_that_a_user_names(place):
    place.plan()
    assert place.run(*TWO)[0] == 0
    named = place.folder / "asd_run" / "kept" / "job-step4.ckpt"
    place.plan({"what": "exit", "code": 5, "step": 5, "attempts": [1]})  # before a checkpoint of its own
    code, out, _err = place.run(*TWO, ASD_RUN="another", ASD_RESUME_FROM=str(named))
    assert (code, len(made(out))) == (0, 2)
    begun = [(attempt["resume_from"], attempt["resume_step"]) for attempt in place.record()["attempts"]]
    assert begun == [(str(named), 4)] * 2
    place.plan({"what": "exit", "code": 5, "step": 5})
    code, _out, err = place.run(*TWO, ASD_RUN="third", ASD_RESUME_FROM=str(named))
    assert (code, len(place.record()["attempts"]), "two attempts in a row" in err) == (1, 2, True)
    code, _out, err = place.run(*TWO, ASD_RUN="fourth", ASD_RESUME_FROM="nowhere.ckpt")
    assert (code, "ASD_RESUME_FROM" in err) == (2, True)


@pytest.mark.parametrize(
    ("verdict", "then", "devices"),
    quick(1, [("persistent", [], [[0, 1], [0, 2]]), ("transient", [ONCE], [[0, 1]] * 2)]),
)
def test_where_the_training_goes_on_after_an_anomaly_only_a_persistent_verdict_ends_it(place, verdict, then, devices):
    place.plan({"what": "report", "step": 3, "device": 1, "verdict": verdict}, *then, pause=0.6)
    code, _, err = place.run(*SPARE, ASD_ON_ANOMALY="skip")
    assert (code, len(isolations(place))) == (0, verdict == "persistent"), err
    assert [attempt["devices"] for attempt in place.record()["attempts"]] == devices


def test_two_supervisors_in_one_folder_do_not_get_in_each_others_way(place):
    place.plan({"what": "hang", "step": 1})
    with place.start(*TWO) as process:
        wait_for(lambda: len(place.processes()) > 4)
        code, _, err = place.run(*TWO)
        process.terminate()
        process.communicate(timeout=20)
    assert (code, err.count("\n"), "ASD_RUN_DIR" in err) == (2, 1, True)


def test_a_damaged_record_is_one_sentence(place):
    place.plan()
    (place.folder / "asd_run").mkdir()
    (place.folder / "asd_run" / "supervisor.json").write_text('{"version": 1, "job": 7}')
    code, out, err = place.run(*TWO)
    assert (code, out) == (1, "")
    assert (err.count("\n"), f"{place.folder}/asd_run/supervisor.json" in err) == (1, True)
