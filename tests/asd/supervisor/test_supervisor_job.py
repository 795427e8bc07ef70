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

from tests.support.waiting import wait_for

SPEC = importlib.util.spec_from_file_location("supervised_job", Path(__file__).with_name("supervised_job.py"))
supervised_job = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(supervised_job)
ALL = "[1, 2, 3, 4, 5, 6, 7, 8]"
TWO, SPARE = ("--ranks", "2"), ("--ranks", "2", "--spares", "1")


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


def test_a_job_without_faults_ends_with_0_and_shows_what_its_ranks_print(place):
    place.plan()
    code, out, err = place.run(*TWO)
    assert code == 0
    assert made(out) == [f"rank{rank}: made {ALL} on {rank} of 0,1" for rank in (0, 1)]
    assert err.splitlines() == [
        "asd: job begins: rank 0 on device 0, rank 1 on device 1; from the beginning.",
        "asd: job is done: every rank has ended with exit code 0.",
    ]
    assert place.record()["done"]


def test_a_device_with_a_persistent_fault_is_left_out_and_a_spare_takes_its_place(place):
    place.plan({"what": "anomaly", "step": 6, "device": 1, "verdict": "persistent"})
    code, out, err = place.run(*SPARE)
    assert code == 0
    assert made(out) == [f"rank0: made {ALL} on 0 of 0,2", f"rank1: made {ALL} on 2 of 0,2"]
    file = place.folder / "asd_run" / "kept" / "job-step4.ckpt"
    assert err.splitlines()[1:] == [
        "asd: device 1 is left out: the replay of step 6 of job found persistent hardware.",
        f"asd: {file} is the newest checkpoint without a fault (step 4, before the fault's first sign in step 6); its "
        "SHA-256 is that of its manifest.",
        f"asd: job+2 begins: rank 0 on device 0, rank 1 on device 2; from {file}.",
        "asd: job+2 is done: every rank has ended with exit code 0.",
    ]
    (event,) = isolations(place)
    assert (event["kind"], event["device"], event["rank"], event["step"]) == ("isolation", "CPU:1", 1, 6)
    assert event["verdict"] == "persistent"


def test_with_too_few_devices_left_it_ends_with_16_and_says_from_where_to_resume(place):
    place.plan({"what": "anomaly", "step": 6, "device": 1, "verdict": "persistent"})
    code, _, err = place.run(*TWO)
    assert code == 16
    assert err.splitlines()[-1] == (
        "asd: too few devices are left, 1 where 2 are needed (device 1: the replay of step 6 of job found "
        f"persistent hardware). Resume elsewhere from {place.folder}/asd_run/kept/job-step4.ckpt."
    )
    assert place.run(*TWO)[0] == 16  # it stays so


def test_three_strikes_leave_a_device_out(place):
    place.plan({"what": "anomaly", "step": 6, "device": 1, "verdict": "transient"})
    code, out, err = place.run(*SPARE)
    assert code == 0
    assert made(out)[1] == f"rank1: made {ALL} on 2 of 0,2"
    assert "asd: step 6: the replay of step 6 found hardware that failed once: a strike for device 1" in err
    assert [attempt["devices"] for attempt in place.record()["attempts"]] == [[0, 1]] * 3 + [[0, 2]]
    assert "asd: device 1 is left out: it has 3 strikes within 480 minutes." in err
    assert len(isolations(place)) == 1


def test_software_leaves_nobody_out_and_is_tried_once_more(place):
    place.plan({"what": "anomaly", "step": 6, "rank": 0, "verdict": "software"})
    code, _, err = place.run(*SPARE)
    assert code == 17
    assert err.splitlines()[-1] == (
        "asd: step 6: software or data, no device is left out: the replay of step 6 found software or data; another "
        "attempt would meet the same."
    )
    assert [attempt["devices"] for attempt in place.record()["attempts"]] == [[0, 1], [0, 1]]
    assert isolations(place) == []


def test_without_a_verdict_the_suspect_makes_room_for_a_spare_and_the_job_is_done(place):
    place.plan({"what": "anomaly", "step": 6, "device": 1})
    code, out, err = place.run(*SPARE)
    assert code == 0
    assert made(out)[1] == f"rank1: made {ALL} on 2 of 0,2"
    assert (
        "asd: step 6: device 1 is under suspicion: norm had the value 1e+09 in step 6, and no replay says why." in err
    )
    assert isolations(place) == []  # nobody knows that it was the device


def test_the_same_value_on_another_device_clears_the_first_and_ends_with_17(place):
    place.plan({"what": "anomaly", "step": 6, "rank": 1}, same=True)
    code, _, err = place.run(*SPARE)
    assert code == 17
    assert "norm had the very same value in step 6 before; another attempt would meet the same." in err
    assert [attempt["devices"] for attempt in place.record()["attempts"]] == [[0, 1], [0, 2]]
    assert isolations(place) == []


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_device_that_can_not_change_its_rank_and_repeats_its_value_is_no_reason_to_leave_it_out(place, ranks):
    place.plan({"what": "anomaly", "step": 6, "device": 0}, same=True)
    code, _, err = place.run("--ranks", str(ranks))
    assert code == 17
    assert "norm had the very same value in step 6 before; another attempt would meet the same." in err
    assert isolations(place) == []


def asd(place, *words):
    """A command beside the job, in its folder."""
    return subprocess.run(
        [sys.executable, "-m", "asd", *words],
        cwd=place.folder,
        env=place.environ,
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_asd_devices_shows_the_devices_of_the_job_and_gives_one_back(place):
    place.plan({"what": "anomaly", "step": 3, "device": 1, "verdict": "persistent"})
    assert place.run(*SPARE)[0] == 0
    listed = {each["device"]: each for each in json.loads(asd(place, "devices", "--json").stdout)}
    assert (listed["CPU:1"]["state"], listed["CPU:1"]["isolated_by"]) == ("isolated", "local")
    assert listed["CPU:1"]["verdicts"]["persistent"] == 1
    assert {name for name, each in listed.items() if each["health"]["Health Status"] == "OK"} == {"CPU:0", "CPU:2"}
    done = asd(place, "devices", "release", "here", "CPU:1")
    assert (done.returncode, done.stdout) == (0, "CPU:1 on here: it was released by hand.\n")
    assert [event["kind"] for event in isolations(place)] == ["isolation", "recovery"]
    place.plan()
    code, out, _ = place.run(*SPARE, ASD_RUN="another")
    assert code == 0
    assert made(out)[1] == f"rank1: made {ALL} on 1 of 0,1"


def test_a_device_is_given_back_while_the_job_runs(place):
    place.plan({"what": "anomaly", "step": 3, "device": 1, "verdict": "persistent", "attempts": [1]}, pause=0.5)
    with place.start(*SPARE) as process:
        wait_for(lambda: isolations(place))
        wait_for(lambda: (place.folder / "asd_run" / "logs" / "job+2").exists())
        done = asd(place, "devices", "release", "here", "CPU:1")
        _, err = process.communicate(timeout=40)
    assert (process.returncode, done.returncode) == (0, 0), (err, done)
    assert "asd: device 1 is back.\n" in err


def test_the_circuit_breaker_ends_a_job_in_which_one_device_after_the_other_looks_bad(place):
    place.plan({"what": "anomaly", "step": 3, "rank": 1, "verdict": "persistent"})
    code, _, err = place.run("--ranks", "2", "--spares", "4")
    assert code == 17
    assert [attempt["devices"] for attempt in place.record()["attempts"]] == [[0, 1], [0, 2], [0, 3]]
    assert [event["device"] for event in isolations(place)] == ["CPU:1", "CPU:2"]
    assert err.splitlines()[-1] == (
        "asd: step 3: the replay of step 3 found persistent hardware, but the circuit breaker is open, so device 3 is "
        "not left out; see `asd handler --reset-breaker`."
    )


def test_restarts_are_used_up_after_so_many(place):
    place.plan({"what": "signal", "number": 9, "step": 3, "rank": 0})
    code, _, err = place.run(*TWO, "--max-restarts", "1")
    assert code == 1
    assert err.splitlines()[-1] == (
        "asd: rank 0 on device 0 ended with exit code 137 (signal 9); 1 restarts are used up; see "
        f"{place.folder}/asd_run/logs/job+2."
    )


def test_a_program_that_never_makes_a_step_is_started_twice_only(place):
    place.plan({"what": "exit", "code": 2, "step": 1})
    code, _, err = place.run(*TWO)
    assert code == 1
    assert "two attempts in a row made no step, so that is the end; see " in err
    assert len(place.record()["attempts"]) == 2


@pytest.mark.parametrize("then", [{"what": "anomaly", "step": 7}, {"what": "exit", "step": 7, "code": 3}])
def test_a_checkpoint_from_which_two_attempts_came_no_further_is_left_for_the_one_before(place, then):
    """As one with a NaN in it: whoever resumes from it raises in its first step, or can't even load it."""
    place.plan({"what": "exit", "step": 8, "attempts": [1], "code": 3}, {**then, "resumed": 6})
    code, out, err = place.run(*TWO)
    assert (code, len(made(out))) == (0, 2)
    kept = place.folder / "asd_run" / "kept"
    begun = [line.rpartition(" from ")[2] for line in err.splitlines() if " begins: " in line]
    assert begun == ["the beginning.", *[f"{kept}/job-step{step}.ckpt." for step in (6, 6, 4)]]
    assert f"asd: {kept}/job-step6.ckpt is left: two attempts in a row came no further from it." in err


def test_a_rank_that_hangs_is_noticed_and_the_job_started_again(place):
    place.plan({"what": "hang", "step": 4, "attempts": [1]})
    code, out, err = place.run(*TWO, "--hang-timeout", "5")
    assert code == 0
    assert made(out)[0] == f"rank0: made {ALL} on 0 of 0,1"
    assert "asd: no rank has made a step for 5 s, after step 3; no anomaly explains it: restart 1" in err


def test_a_damaged_checkpoint_is_skipped_with_a_sentence(place):
    place.plan({"what": "hang", "step": 7, "attempts": [1]})
    with place.start(*TWO) as process:
        kept = place.folder / "asd_run" / "kept"
        wait_for(lambda: (kept / "job-step6.ckpt.asd-manifest.json").exists())
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    (kept / "job-step6.ckpt").write_text("[1, 2, 3")
    code, out, err = place.run(*TWO)
    assert code == 0
    assert f"{kept}/job-step6.ckpt (step 6) is skipped: it has 8 bytes and was written with 18." in err
    assert f"job+2 begins: rank 0 on device 0, rank 1 on device 1; from {kept}/job-step4.ckpt." in err
    assert made(out)[0] == f"rank0: made {ALL} on 0 of 0,1"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_all_processes_and_the_next_start_goes_on(place, number, code):
    place.plan(pause=0.2)
    with place.start(*TWO) as process:
        wait_for(lambda: (place.folder / "asd_run" / "kept" / "job-step4.ckpt.asd-manifest.json").exists())
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
    assert process.returncode == code
    assert err.endswith(f"asd: job was ended by {number.name}, with all its processes.\n")
    assert place.processes() == {}
    place.plan()
    done, out, err = place.run(*TWO)
    assert done == 0
    assert err.startswith("asd: goes on with job after job.\n")
    assert made(out)[0] == f"rank0: made {ALL} on 0 of 0,1"


def test_ranks_that_ignore_sigterm_are_killed_after_the_grace_time(place):
    stubborn = ["sh", "-c", "trap '' TERM INT; sleep 300 & sleep 300; sleep 300"]
    with place.start(*TWO, command=stubborn, PATH=f"{place.folder}/bin:{os.environ['PATH']}") as process:
        wait_for(lambda: [line.strip() for line in place.processes().values()].count("sleep 300") == 4)
        began = time.monotonic()
        process.terminate()
        process.communicate(timeout=20)
    assert process.returncode == 143
    assert 5 <= time.monotonic() - began < 15
    assert place.processes() == {}


@pytest.mark.parametrize("victim", ["keeper.py", "bin/msrun", "worker.py", "bin/training"])
def test_when_any_process_is_killed_the_job_is_started_again(place, victim):
    place.plan(pause=0.2)
    with place.start(*TWO) as process:
        wait_for(lambda: (place.folder / "asd_run" / "kept" / "job-step2.ckpt.asd-manifest.json").exists())
        # The command line of each names those below it too, further behind.
        lines = {pid: [*line.split()[:4], "", "", ""] for pid, line in place.processes().items()}
        found = [pid for pid, words in lines.items() if words[_WORD[victim]].endswith(victim)]
        os.kill(found[0], signal.SIGKILL)
        out, err = process.communicate(timeout=40)
    assert process.returncode == 0, err
    assert "job+2 begins" in err
    assert made(out)[0] == f"rank0: made {ALL} on 0 of 0,1"


_WORD = {"keeper.py": 2, "bin/msrun": 1, "worker.py": 1, "bin/training": 1}


def test_when_the_supervisor_is_killed_everything_ends_and_the_next_one_goes_on(place):
    place.plan(pause=0.2)
    with place.start(*TWO) as process:
        wait_for(lambda: (place.folder / "asd_run" / "kept" / "job-step4.ckpt.asd-manifest.json").exists())
        process.kill()
        process.communicate(timeout=20)
    wait_for(lambda: place.processes() == {})
    assert not place.record()["done"]
    place.plan()
    code, out, err = place.run(*TWO)
    assert code == 0
    assert err.startswith("asd: goes on with job after job.\n")
    assert "job+2 begins" in err
    assert made(out)[0] == f"rank0: made {ALL} on 0 of 0,1"


def test_what_a_killed_supervisor_had_not_judged_yet_is_judged_by_the_next(place):
    place.plan({"what": "anomaly", "step": 6, "device": 1, "verdict": "persistent"}, pause=0.05)
    with place.start(*SPARE) as process:
        events = place.folder / "asd_run" / "events-rank1.jsonl"
        wait_for(lambda: events.exists() and "anomaly" in events.read_text())
        process.kill()
        process.communicate(timeout=20)
    wait_for(lambda: place.processes() == {})
    code, out, _ = place.run(*SPARE)
    assert code == 0
    assert made(out)[1].endswith(" on 2 of 0,2")


def test_a_new_job_of_the_same_name_does_not_mix_up_what_the_last_one_left(place):
    place.plan({"what": "anomaly", "step": 6, "device": 1, "verdict": "persistent", "attempts": [1]})
    assert place.run(*SPARE)[0] == 0
    place.plan({"what": "exit", "code": 5, "step": 4, "attempts": [3]})
    code, out, err = place.run(*SPARE)
    assert code == 0
    assert err.splitlines()[0] == "asd: job+3 begins: rank 0 on device 0, rank 1 on device 2; from the beginning."
    # Not from the last step of the job before.
    assert f"job+4 begins: rank 0 on device 0, rank 1 on device 2; from {place.folder}/asd_run/kept/job+3-step2" in err
    assert made(out)[0] == f"rank0: made {ALL} on 0 of 0,2"


def test_where_the_training_goes_on_after_an_anomaly_a_verdict_ends_it_all_the_same(place):
    place.plan({"what": "report", "step": 3, "device": 1, "verdict": "persistent"}, pause=0.6)
    code, out, err = place.run(*SPARE, ASD_ON_ANOMALY="skip")
    assert code == 0
    assert "asd: device 1 is left out: the replay of step 3 of job found persistent hardware." in err
    assert made(out)[-1] == f"rank1: made {ALL} on 2 of 0,2"


def test_a_crash_long_after_an_anomaly_that_was_skipped_is_a_crash(place):
    place.plan(
        {"what": "report", "step": 3, "device": 1, "verdict": "transient"},
        {"what": "exit", "code": 5, "step": 7, "attempts": [1]},
    )
    code, _, err = place.run(*SPARE, ASD_ON_ANOMALY="skip")
    assert code == 0
    assert "asd: rank 0 on device 0 ended with exit code 5, after step " in err
    assert "no anomaly explains it: restart 1 of at most 3; see " in err
    assert [attempt["devices"] for attempt in place.record()["attempts"]] == [[0, 1], [0, 1]]


def test_two_supervisors_in_one_folder_do_not_get_in_each_others_way(place):
    place.plan({"what": "hang", "step": 1})
    with place.start(*TWO) as process:
        wait_for(lambda: len(place.processes()) > 4)
        code, _, err = place.run(*TWO)
        process.terminate()
        process.communicate(timeout=20)
    assert code == 2
    assert err == (
        f"asd: ASD_RUN_DIR has the value '{place.folder}/asd_run', which is not valid: valid is a folder in which no "
        "other `asd run` and no `asd handler` is at work.\n"
    )


def test_a_damaged_record_is_one_sentence(place):
    place.plan()
    (place.folder / "asd_run").mkdir()
    (place.folder / "asd_run" / "supervisor.json").write_text('{"version": 1, "job": 7}')
    code, out, err = place.run(*TWO)
    assert (code, out) == (1, "")
    assert err == (f"asd: record {place.folder}/asd_run/supervisor.json field job is 7; valid is a text.\n")
