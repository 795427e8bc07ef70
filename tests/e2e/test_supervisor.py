"""`asd run --ranks` with MindSpore's own launcher and a real training in data parallel."""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.waiting import processes_with, wait_for

PROGRAM = Path(__file__).parent / "programs" / "supervised.py"
STEPS = 8
PERSISTENT = "device=1:gradient:norm:flip=30:step=5:duration=1000"


class Supervised:
    """`asd run --ranks 2` in the folder of a runner."""

    def __init__(self, runner):
        self.runner = runner
        self.mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
        self.environ = {**runner.quiet, "ASD_RUN": "job", "SUPERVISED_TEST": self.mark}

    def start(self, *words, options=("--spares", "1")):
        """The command, running."""
        command = (sys.executable, "-m", "asd", "run", "--ranks", "2", *options, "--")
        return self.runner.start(*command, sys.executable, PROGRAM, STEPS, *words, **self.environ)

    def run(self, *words, options=("--spares", "1"), timeout=300):
        """Exit code, output and sentences."""
        with self.start(*words, options=options) as process:
            out, err = process.communicate(timeout=timeout)
        return process.returncode, out, [line for line in err.splitlines() if line.startswith("asd: ")]

    def processes(self):
        """Everything that was started here and lives."""
        return processes_with(self.mark)

    def checkpoint(self, step):
        """A manifest: the checkpoint is complete then."""
        return self.runner.folder / "asd_run" / "checkpoints" / f"step{step}.ckpt.asd-manifest.json"

    def pid_of(self, what):
        """The process of `rank 0`, `rank 1`, the `launcher`, or the `scheduler` through which the ranks met."""
        processes = self.processes()
        if what == "launcher":
            return next(pid for pid, words in processes.items() if Path(words[1]).name == "msrun")
        role = b"MS_ROLE=MS_SCHED" if what == "scheduler" else f"\0{what.replace('rank ', 'RANK_ID=')}\0".encode()
        found = [pid for pid in processes if role in Path(f"/proc/{pid}/environ").read_bytes()]
        return next(pid for pid in found if not processes[pid][1].endswith("worker.py"))

    def left_out(self):
        """The devices that were isolated, by number."""
        isolations = self.runner.events("asd_run/events-handler.jsonl")
        return sorted(event["device"].partition(":")[2] for event in isolations)

    def record(self):
        return json.loads((self.runner.folder / "asd_run" / "supervisor.json").read_text())


class Undisturbed(NamedTuple):
    """What a training printed, and how many seconds it took."""

    out: str
    seconds: float


@pytest.fixture
def supervised(runner):
    job = Supervised(runner)
    yield job
    assert job.processes() == {}, "something was left behind"


def ends(out):
    """What each rank had in the end."""
    found = re.findall(r"^rank(\d): DONE (.*)$", out, re.MULTILINE)
    return {int(rank): json.loads(text) for rank, text in found}


def losses(out):
    """The loss of each step of rank 0; of steps that were made again the last."""
    return dict(re.findall(r"^rank0: STEP (\d+) (\S+)$", out, re.MULTILINE))


def same_end(out, undisturbed):
    """Whether weights and optimizer are those of the undisturbed training on every rank, and so is each step's loss."""
    kept = ("digest", "ranks")
    clean, found = (
        {rank: [end[name] for name in kept] for rank, end in ends(each).items()} for each in (undisturbed.out, out)
    )
    return found == clean and losses(out) == losses(undisturbed.out)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """The training without a fault."""
    conftest = sys.modules[next(name for name in sys.modules if name.endswith("e2e.conftest"))]
    job = Supervised(conftest.Runner(tmp_path_factory.mktemp("undisturbed")))
    began = time.monotonic()
    code, out, said = job.run(options=())
    assert code == 0, said
    assert job.processes() == {}
    return Undisturbed(out, time.monotonic() - began)


def test_a_persistent_fault_of_one_device_is_replayed_and_left_out_and_the_training_goes_on_to_its_end(supervised):
    code, out, said = supervised.run(PERSISTENT, "replay=1")
    assert code == 0, said
    attempts = supervised.record()["attempts"]
    assert [(each["run"], each["devices"]) for each in attempts] == [("job", [0, 1]), ("job+2", [0, 2])]
    assert "/step4.ckpt" in said[-2]
    assert ends(out)[1]["device"] == "2"
    events = supervised.runner.events("asd_run/events-rank1.jsonl")
    anomaly, replay = (next(event for event in events if event["kind"] == kind) for kind in ("anomaly", "replay"))
    assert (anomaly["step"], anomaly["refused"], replay["verdict"]) == (5, True, "persistent")
    (isolation,) = supervised.runner.events("asd_run/events-handler.jsonl")
    assert (isolation["kind"], isolation["rank"], isolation["device"]) == ("isolation", 1, "CPU:1")
    # No rule of any rank was forgotten on the way.
    assert [event for event in events if event["kind"] == "problem"] == []


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "step"), [("rank 1", 2), ("launcher", 4), ("scheduler", 2)])
def test_a_killed_process_costs_a_restart_at_most(supervised, undisturbed, victim, step):
    with supervised.start("pause=0.2", options=("--hang-timeout", f"{40 + 2 * undisturbed.seconds:.0f}")) as process:
        wait_for(supervised.checkpoint(step).exists)
        os.kill(supervised.pid_of(victim), signal.SIGKILL)
        out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    assert same_end(out, undisturbed)
    assert supervised.left_out() == []
    if victim != "scheduler":  # the ranks need it to find one another, and may do without it afterwards
        assert "job+2 begins: rank 0 on device 0, rank 1 on device 1; from " in err


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 5, 6])
def test_a_fault_in_the_first_steps_or_in_one_that_is_saved_costs_nothing_but_the_device(supervised, undisturbed, step):
    code, out, said = supervised.run(PERSISTENT.replace("step=5", f"step={step}"), "replay=1")
    assert code == 0, said
    assert same_end(out, undisturbed)
    assert supervised.left_out() == ["1"]
    begun = "the beginning" if step == 1 else "/step4.ckpt"
    assert any(line.startswith("asd: job+2 begins: ") and line.endswith(f"{begun}.") for line in said)


@pytest.mark.slow
def test_a_rank_that_dies_while_it_writes_a_checkpoint_leaves_half_of_one_which_is_not_used(supervised, undisturbed):
    code, out, said = supervised.run("torn=4", options=())
    assert code == 0, said
    assert same_end(out, undisturbed)
    assert any(line.startswith("asd: job+2 begins: ") and line.endswith("/step2.ckpt.") for line in said)
    assert "ended with exit code 137 (signal 9)" in " ".join(said)
    assert supervised.left_out() == []


@pytest.mark.slow
def test_a_supervisor_that_is_killed_at_random_points_of_the_story_ends_it_in_the_end(supervised, undisturbed):
    """Each time the same command goes on; the bad device is found, left out once, and no other one."""
    source, words = random.Random(7), (PERSISTENT, "replay=1", "pause=0.1")
    for _ in range(2):
        with supervised.start(*words) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(source.uniform(0.5, 15.0))
            process.kill()
            process.communicate(timeout=20)
        wait_for(lambda: supervised.processes() == {})
    code, out, said = supervised.run(*words)
    assert code == 0, said
    assert same_end(out, undisturbed)
    assert supervised.left_out() == ["1"]
