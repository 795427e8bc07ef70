"""A training of mindformers 2, by the real Trainer of its wheel, with a stand-in for hyper-parallel."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "mindformers2/training.py"
WHEEL = "mindformers==2.1.0"
REGISTERED = Path(__file__).parent / "programs" / "mindformers2"
ENTRY = json.dumps([{"type": "ASDMonitor", "auto_register": "asd_shim.ASDMonitor"}])
SKIP = {"ASD_ON_ANOMALY": "skip"}


@pytest.fixture(scope="session")
def wheel():
    """The folder with the wheel's packages; it wants a MindSpore that is on no index, so it stands apart."""
    folder = Path(sys.prefix) / "share" / WHEEL
    if not folder.exists():
        new = folder.with_name(f"{WHEEL}.{os.getpid()}")
        install = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", str(new), WHEEL]
        subprocess.run([sys.executable, *install], check=True)
        new.rename(folder)
    return folder


def steps(done):
    """What the training printed per step, by step."""
    assert done.code == 0, done
    found = [json.loads(line) for line in done.out.splitlines() if line.startswith('{"step"')]
    return {each.pop("step"): each for each in found}


@pytest.fixture(scope="session")
def plain(wheel, tmp_path_factory):
    from tests.e2e.conftest import Runner

    return steps(Runner(tmp_path_factory.mktemp("plain")).program(PROGRAM, wheel, "[]"))


def test_one_entry_in_the_yaml_judges_a_training(runner, wheel):
    judged = steps(runner.program(PROGRAM, wheel, ENTRY, REGISTER_PATH=REGISTERED))
    assert sorted(judged) == list(range(1, 11))
    assert judged[10]["loss"] < judged[1]["loss"]
    status = json.loads((runner.folder / "asd_run/status-rank0.json").read_text())
    assert (status["steps"], status["refused"], status["active"]) == (10, 0, False)
    assert runner.events() == []


@pytest.mark.slow
@pytest.mark.parametrize(("strike", "kind"), [("activation", "norm"), ("weight", "down.weight")])
def test_a_wrong_number_in_one_micro_batch_is_refused_and_its_step_re_run(runner, wheel, plain, strike, kind):
    judged = {"ASD_PROTECTION": "full", **SKIP}  # by the document no gradient of a weight is
    assert steps(runner.program(PROGRAM, wheel, ENTRY, strike, REGISTER_PATH=REGISTERED, **judged)) == plain
    first = [event for event in runner.events() if event["level"] == "first"]
    assert {(event["kind"], event["step"], event["rank"], event["healed"]) for event in first} == {
        ("anomaly", 8, 0, True),
        ("replay", 8, 0, True),
    }
    assert any(kind in event["checkpoint"] for event in first)
    assert first[-1]["verdict"] == "transient"


@pytest.mark.slow
def test_a_judged_training_has_every_bit_of_one_without(runner, wheel, plain):
    assert steps(runner.program(PROGRAM, wheel, ENTRY, REGISTER_PATH=REGISTERED)) == plain


@pytest.mark.slow
def test_without_any_entry_asd_run_judges_the_same(runner, wheel, plain):
    judged = {"ASD_PROTECTION": "full", **SKIP}
    assert steps(runner.asd_run(PROGRAM, wheel, "[]", "activation", **judged)) == plain
    assert {event["step"] for event in runner.events() if event["level"] == "first"} == {8}
