"""`asd demo`: the whole story, in both modes, found or not, and interrupted."""

import json
import signal
import sys
import time

import pytest

from tests.support.tables import quick

FAULT = "gradient:layers.1.attention_norm:flip=30:step="
DEFAULT = {"ASD_PROTECTION": ""}


def assert_told(runner, done, step, checks):
    """Everything in the story came true and its pieces are there."""
    assert (done.code, done.err) == (0, "")
    story = json.loads(done.out)
    assert len(story["checks"]) == checks
    assert {check for check, came_true in story["checks"].items() if not came_true} == set()
    assert story["final_loss"] == story["clean_loss"] < 6
    assert story["event"]["faultcode"] == "80818C00"
    events = [event for event in runner.events("out/events-rank0.jsonl") if event["kind"] == "anomaly"]
    assert events[0] == story["event"]["data"]
    # The gradient flows on to the checkpoints behind it; which of two in a block comes first, no operator tells.
    first, *behind = [event["checkpoint"] for event in events if not event["checkpoint"].endswith("weight")]
    assert first == "model.layers.1.attention_norm"
    assert set(behind) == {"model.layers.0.ffn_norm", "model.layers.0.attention_norm", "model.tok_embeddings"}
    assert {(e["step"], e["level"], e["refused"] or e["healed"]) for e in events} == {(step, "first", True)}
    assert (runner.folder / events[0]["evidence"] / "values.csv").is_file()
    for name in ("picture", "report"):
        assert "model.layers.1.attention_norm" in (runner.folder / story[name]).read_text()


@pytest.mark.parametrize(
    ("mode", "parts", "checks"),
    quick(1, [("graph", "detection", 6), *((mode, "detection,unseen", 9) for mode in ("graph", "pynative"))]),
)
def test_in_either_mode_everything_comes_true(runner, mode, parts, checks):
    options = ("--parts", parts, "--mode", mode, "--steps", 20, "--fault", f"{FAULT}12", "--json", "--out", "out")
    assert_told(runner, runner.asd("demo", *options, timeout=900, **DEFAULT), 12, checks)
    assert {entry.name for entry in runner.folder.iterdir()} <= {"out"}


@pytest.mark.slow
def test_in_a_job_of_two_devices_and_a_spare_all_three_acts_come_true(runner):
    parts = "persistent,transient,poisoned"
    options = ("--parts", parts, "--json", "--out", "out")
    done = runner.asd("demo", *options, timeout=900, ASCEND_RT_VISIBLE_DEVICES="4")  # too few for another job
    assert (done.code, done.err) == (0, "")
    story = json.loads(done.out)
    assert {check for check, came_true in story["checks"].items() if not came_true} == set()
    assert {check.partition(":")[0] for check in story["checks"]} >= set(parts.split(","))
    assert ">isolated</text>" in (runner.folder / "out" / "job.svg").read_text()
    isolations = [event["device"] for event in runner.events("out/persistent/events-handler.jsonl")]
    assert isolations == ["CPU:1"]
    assert runner.events("out/transient/events-handler.jsonl") == []
    assert runner.events("out/poisoned/events-handler.jsonl") == []


@pytest.mark.slow
def test_a_fault_too_small_to_be_found_ends_with_code_1_and_says_no(runner):
    done = runner.asd("demo", "--steps", 20, "--fault", "gradient:norm_out:flip=0:step=12", "--out", "out")
    assert (done.code, "Traceback" in done.err, "   NO   the fault was found" in done.out) == (1, False, True)
    assert done.out.count("\n   yes  ") >= 2
    assert runner.events("out/events-rank0.jsonl") == []


def test_a_place_that_the_network_lacks_ends_with_one_sentence_and_code_2(runner):
    done = runner.asd("demo", "--fault", "gradient:nowhere:flip=30:step=12", "--steps", 20, "--json", "--out", ".")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert all(word in done.err for word in ("'nowhere'", "model.layers.0.attention_norm"))


@pytest.mark.parametrize(
    "seconds",
    [pytest.param(1.5, id="while mindspore is imported", marks=pytest.mark.slow), pytest.param(7, id="in a training")],
)
def test_ctrl_c_ends_it_at_once_with_code_130_and_one_sentence(runner, seconds):
    options = ("--parts", "detection", "--steps", 20_000, "--fault", FAULT + "5", "--out", "out")
    with runner.start(sys.executable, "-m", "asd", "demo", *options) as process:
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "asd: interrupted.\n")
    assert time.monotonic() - began < 30
    assert "Traceback" not in out
    for file in (runner.folder / "out").glob("*.jsonl"):
        assert [json.loads(line)["specversion"] for line in file.read_text().splitlines()]
