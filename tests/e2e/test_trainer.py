"""The Trainer of mindformers and a yaml, with `callbacks: ASDMonitor` or with nothing but `asd run` in front."""

import re
from pathlib import Path

import pytest

SLOW = pytest.mark.slow
PROGRAMS = Path(__file__).parent / "programs"
CHECKPOINTS = ["model.norm_out", "model.layers.1.ffn_norm", "model.layers.1.attention_norm"]
CHECKPOINTS += ["model.layers.0.ffn_norm", "model.layers.0.attention_norm", "model.tok_embeddings"]
MONITOR = "  - {type: ASDMonitor, auto_register: asd_shim.ASDMonitor}\n"
DRILL = '  - {type: Drill, auto_register: asd_shim.Drill, fault: "gradient:layers.1.ffn_norm:set=5.0:step=3"}\n'


def train(runner, mode, steps, callbacks, *, run=False, **environ):
    """Runs the Trainer with these callbacks besides MFLossMonitor."""
    yaml = (PROGRAMS / "trainer.yaml").read_text()
    assert yaml.count(MONITOR) == 1
    path = runner.folder / "training.yaml"
    path.write_text(yaml.replace(MONITOR, callbacks))
    start = runner.asd_run if run else runner.program
    arguments = ("trainer.py", path, {"graph": 0, "pynative": 1}[mode], steps)
    return start(*arguments, REGISTER_PATH=str(PROGRAMS / "trainer_register"), **environ)


def values(done):
    """Step, checkpoint and value of every value in the log."""
    line = r"^\[INFO\] ASD\(\d+\):\S+ step=(\d+) checkpoint=(\S+) value=(\S+) limit=1e\+06$"
    found = re.findall(line, done.err, re.MULTILINE)
    return [(int(step), name, float(value)) for step, name, value in found]


@SLOW
@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_an_entry_in_the_yaml_judges_all_checkpoints_in_every_step(runner, mode):
    done = train(runner, mode, 3, MONITOR, NPU_ASD_ENABLE="3")
    assert done.code == 0
    judged = values(done)
    expected = [(step, name) for step in (1, 2, 3) for name in CHECKPOINTS]
    assert sorted((step, name) for step, name, _ in judged) == sorted(expected)  # in no order in a compiled graph
    first = {name: value for step, name, value in judged if step == 1}
    # Bit-equal trainings have equal values; both modes do.
    assert first[CHECKPOINTS[0]] == pytest.approx(0.00503257, rel=1e-5)
    assert first[CHECKPOINTS[5]] == pytest.approx(0.489034, rel=1e-5)
    assert runner.events() == []


@pytest.mark.parametrize(
    ("mode", "run"),
    [("graph", True), *(pytest.param(*each, marks=SLOW) for each in (("graph", False), ("pynative", False)))],
)
def test_low_thresholds_and_a_corrupted_gradient_end_the_training(runner, mode, run):
    done = train(runner, mode, 5, DRILL if run else MONITOR + DRILL, run=run, NPU_ASD_UPPER_THRESH="4,3")
    assert done.code == 1
    assert "asd.errors.AnomalyDetected: " in done.err
    events = runner.events()
    assert {event["step"] for event in events} == {3}
    first = next(event for event in events if event["level"] == "first")
    assert (first["checkpoint"], first["limits"]) == ("model.layers.1.ffn_norm", [4.0])
    assert first["refused"] or first["healed"]
    assert first["value"] == pytest.approx(5.0, rel=1e-3)


@SLOW
def test_asd_run_and_an_entry_in_the_yaml_judge_each_value_once(runner):
    done = train(runner, "graph", 2, MONITOR, run=True, NPU_ASD_ENABLE="3")
    assert done.code == 0
    expected = [(step, name) for step in (1, 2) for name in CHECKPOINTS]
    assert sorted((step, name) for step, name, _ in values(done)) == sorted(expected)
