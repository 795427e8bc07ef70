"""A fault that comes back when the step is made again is named, and the training goes on as without the search."""

import json
from pathlib import Path

import pytest
from checked_nets import assert_same_bits
from test_replay import ALWAYS, ONCE, Training, settings

from asd.event import Event
from asd.exporters.bundle.narrowing import write_page
from asd.operators.rerun import recheck

pytestmark = pytest.mark.usefixtures("clean")
FORWARD = "output:norm_out:scale=-1e9:step=3:duration=1000"


def answers(run_dir):
    return {path.parent.parent.name: path for path in Path(run_dir).glob("evidence/*/*/narrowing/narrowing.json")}


@pytest.mark.parametrize(
    "corner",
    [("graph", "kernel"), pytest.param(("pynative", "operators"), marks=pytest.mark.slow)],
    ids=["graph-kernel", "pynative-operators"],
    indirect=True,
)
def test_a_fault_that_comes_back_is_named_and_the_search_leaves_no_trace(corner, monkeypatch, tmp_path):
    fault, call = {
        "graph": (ALWAYS, "Cell.norm_out.LayerNorm.backward.0"),
        "pynative": (FORWARD, "Cell.norm_out.LayerNorm.forward.0"),
    }[corner]
    ours = Training(monkeypatch, fault, config=settings(narrow=True, run_dir=str(tmp_path / "run")))
    reasons = {event.step: event.reason for event in ours.events if event.kind == "replay"}
    found = answers(tmp_path / "run")
    assert set(found) == {f"rank0-step{step}" for step in sorted(reasons)[:3]}  # a fault that stays says the same again
    told = json.loads(found["rank0-step3"].read_text())
    assert (told["call"], told["kind"], told["confidence"]) == (call, "operator", "high")
    assert told["sentence"].startswith(f"The first wrong operator is {call}: its ")
    assert "first at index [" in told["sentence"]
    assert told["sentence"] in reasons[3]
    state = ours.state()
    assert_same_bits(state, Training(monkeypatch, fault, replayed=False).state())
    page = write_page(found["rank0-step3"].parent)
    assert f"The first wrong operator is {call}" in page.read_text()


def test_a_fault_that_does_not_come_back_is_not_searched_for(monkeypatch, tmp_path):
    training = Training(monkeypatch, ONCE, config=settings(narrow=True, run_dir=str(tmp_path / "run")))
    assert [verdict for _, verdict, _ in training.verdicts()] == ["transient"]
    assert answers(tmp_path / "run") == {}


def test_a_step_that_cannot_be_recorded_is_said_in_the_verdict(monkeypatch, tmp_path):
    monkeypatch.setattr("asd.operators.rerun.narrowing._MOST_KEPT", 0)
    training = Training(monkeypatch, ALWAYS, config=settings(narrow=True, run_dir=str(tmp_path / "run")))
    assert answers(tmp_path / "run") == {}
    [first, _] = [event for event in training.events if event.kind == "replay"]
    assert isinstance(first, Event)
    assert first.reason.endswith("; the operator was not looked for to the end: a step hands on 0.0 GiB, too much to "
                                 "record without a sibling.")  # fmt: skip


@pytest.mark.parametrize(
    ("label", "left_out"),
    [("Tensor.__mul__", False), ("Tensor.__sub__", False), ("Functional.linear", False), ("Tensor.add_", True),
     ("Tensor.__iadd__", True), ("Tensor.__setitem__", True), ("Primitive.Assign", True)],
)  # fmt: skip
def test_only_calls_that_change_what_they_are_given_are_not_made_again(label, left_out):
    assert bool(recheck._KEEPS_STATE.search(label)) is left_out
