"""`asd run --ranks` with MindSpore's own launcher and a real training in data parallel."""

import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "supervised.py"
STEPS = 8
PERSISTENT = "device=1:gradient:norm:flip=30:step=5:duration=1000"
TRANSIENT = "device=1:gradient:norm:flip=30:step=5:duration=1"


class Supervised:
    """`asd run --ranks 2` in the folder of a runner."""

    def __init__(self, runner):
        self.runner = runner
        self.mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
        self.environ = {**runner.quiet, "ASD_RUN": "job", "SUPERVISED_TEST": self.mark}

    def start(self, *words, options=("--spares", "1")):
        """The command, running."""
        return self.runner.start(
            sys.executable, "-m", "asd", "run", "--ranks", "2", *options, "--", sys.executable, PROGRAM, STEPS, *words,
            **self.environ,
        )  # fmt: skip

    def run(self, *words, options=("--spares", "1"), timeout=150):
        """Exit code, output and sentences."""
        with self.start(*words, options=options) as process:
            out, err = process.communicate(timeout=timeout)
        return process.returncode, out, [line for line in err.splitlines() if line.startswith("asd: ")]

    def processes(self):
        """Everything that was started here and lives, zombies included."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    if self.mark.encode() in (entry / "environ").read_bytes():
                        found[int(entry.name)] = (entry / "cmdline").read_bytes().decode().split("\0")
                except OSError:
                    continue
        return found

    def checkpoint(self, step):
        """A manifest: the checkpoint is complete then."""
        return self.runner.folder / "asd_run" / "checkpoints" / f"step{step}.ckpt.asd-manifest.json"

    def record(self):
        return json.loads((self.runner.folder / "asd_run" / "supervisor.json").read_text())


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


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """The training without a fault: output and final state."""
    conftest = sys.modules[next(name for name in sys.modules if name.endswith("e2e.conftest"))]
    job = Supervised(conftest.Runner(tmp_path_factory.mktemp("undisturbed")))
    code, out, said = job.run(options=())
    assert code == 0, said
    assert job.processes() == {}
    return out


def test_a_persistent_fault_of_one_device_is_replayed_left_out_and_the_training_ends_as_if_undisturbed(
    supervised, undisturbed
):
    code, out, said = supervised.run(PERSISTENT, "replay=1")
    assert code == 0, said
    file = supervised.runner.folder / "asd_run" / "checkpoints" / "step4.ckpt"
    assert said == [
        "asd: job begins: rank 0 on device 0, rank 1 on device 1; from the beginning.",
        "asd: device 1 is left out: the replay of step 5 found persistent hardware.",
        f"asd: {file} is the newest checkpoint without a fault (step 4, before the fault's first sign in step 5); its "
        "SHA-256 is that of its manifest.",
        f"asd: job+2 begins: rank 0 on device 0, rank 1 on device 2; from {file}.",
        "asd: job+2 is done: every rank has ended with exit code 0.",
    ]
    clean, found = ends(undisturbed), ends(out)
    for rank in (0, 1):
        assert (found[rank]["digest"], found[rank]["loss"]) == (clean[rank]["digest"], clean[rank]["loss"])
    assert losses(out) == losses(undisturbed)
    assert found[1]["device"] == "2"
    events = supervised.runner.events("asd_run/events-rank1.jsonl")
    anomaly, replay = (next(event for event in events if event["kind"] == kind) for kind in ("anomaly", "replay"))
    assert (anomaly["step"], anomaly["refused"], replay["verdict"]) == (5, True, "persistent")
    (isolation,) = supervised.runner.events("asd_run/events-handler.jsonl")
    assert (isolation["kind"], isolation["rank"], isolation["device"]) == ("isolation", 1, "CPU:1")
    # No rule of any rank was forgotten on the way.
    assert [event for event in events if event["kind"] == "problem"] == []


@pytest.mark.slow
def test_a_transient_fault_is_a_strike_and_the_same_devices_go_on(supervised, undisturbed):
    code, out, said = supervised.run(TRANSIENT, "replay=1", "once=1")
    assert code == 0, said
    assert ends(out)[1]["digest"] == ends(undisturbed)[1]["digest"]
    assert [attempt["devices"] for attempt in supervised.record()["attempts"]] == [[0, 1], [0, 1]]
    assert "a strike for device 1, which goes on." in said[1]


@pytest.mark.slow
def test_poisoned_data_leaves_no_device_out_and_ends_with_17(supervised):
    code, _, said = supervised.run("data=5")
    assert code == 17
    assert supervised.record()["devices"]["out"] == {}
    assert [attempt["devices"] for attempt in supervised.record()["attempts"]] == [[0, 1], [2, 1]]
    assert "the very same value in step 5 on device 0 before" in said[-1]


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["supervised.py", "msrun"])
def test_a_killed_rank_or_launcher_costs_a_restart_and_nothing_else(supervised, undisturbed, victim):
    with supervised.start("pause=0.3", options=()) as process:
        wait_for(supervised.checkpoint(4).exists)
        # A rank is the child of a worker, and names the program first.
        lines = supervised.processes().items()
        found = [
            pid for pid, words in lines if Path(words[1]).name == victim and pid in pids_of_ranks(supervised, victim)
        ]
        os.kill(found[-1], signal.SIGKILL)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert ends(out)[0]["digest"] == ends(undisturbed)[0]["digest"]
    assert "job+2 begins: rank 0 on device 0, rank 1 on device 1; from " in err


def pids_of_ranks(supervised, victim):
    if victim == "msrun":
        return set(supervised.processes())
    logs = supervised.runner.folder / "asd_run" / "logs" / "job"
    return {int(file.read_text()) for file in logs.glob("rank*.pid")}


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGKILL, -9), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
     pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)],
)  # fmt: skip
def test_when_the_supervisor_ends_no_process_is_left(supervised, number, code):
    with supervised.start("pause=5", options=()) as process:
        wait_for(supervised.checkpoint(2).exists)
        assert len(supervised.processes()) >= 8  # the supervisor, keeper, launcher, scheduler, two workers and ranks
        process.send_signal(number)
        process.communicate(timeout=20)
    assert process.returncode == code
    wait_for(lambda: supervised.processes() == {}, seconds=5)


@pytest.mark.slow
def test_a_hanging_rank_is_noticed(supervised, undisturbed):
    code, out, said = supervised.run("hang=5", options=("--hang-timeout", "25", "--grace", "1"))
    assert code == 0, said
    assert ends(out)[0]["digest"] == ends(undisturbed)[0]["digest"]
    assert "no rank has made a step for 25 s, after step " in said[1]
