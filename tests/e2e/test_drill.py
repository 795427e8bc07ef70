"""`asd demo --fault`: faults of every target, found or not, in both modes."""

import json
import math

import pytest

OVERFLOWS = 1.8e19
"""A norm of at least so much has squares that are no float32."""


def drill(runner, fault, *options):
    done = runner.asd("demo", "--fault", fault, "--steps", 14, "--json", *options)
    assert done.err == ""
    result = json.loads(done.out)
    assert done.code == (0 if result["found"] else 1)
    assert result["alarms_before"] == 0
    assert not any(runner.folder.iterdir())  # a drill leaves nothing
    return result


def test_a_flipped_bit_in_a_gradient_is_found_at_its_step_and_place_and_refused(runner):
    result = drill(runner, "gradient:layers.0.attention_norm:flip=30:step=10", "--mode", "graph")
    assert result["struck"] == result["checkpoint"] == "model.layers.0.attention_norm"
    assert (result["found"], result["steps_to_detect"], result["refused_steps"]) == (True, 0, [10])
    (change,) = result["changes"]
    assert (change["step"], change["elements"]) == (10, 1)
    after = abs(float(change["after"]))
    expected = pytest.approx(after, rel=1e-3) if after < OVERFLOWS else math.inf
    assert float(result["value"]) == expected
    assert result["final_loss"] < 6


@pytest.mark.slow
def test_an_output_that_sticks_at_infinity_is_refused_as_long_as_it_does_in_pynative(runner):
    result = drill(runner, "output:layers.1.ffn_norm:stick=inf:step=8:duration=2", "--mode", "pynative")
    assert result["struck"] == "model.layers.1.ffn_norm"
    assert (result["steps_to_detect"], result["refused_steps"]) == (0, [8, 9])
    assert result["reason"].startswith("not finite; also model.layers.0.attention_norm, ")
    assert [change["step"] for change in result["changes"]] == [8, 9]
    assert result["final_loss"] < 6


@pytest.mark.slow
def test_a_weight_that_went_far_off_stays_off_and_every_further_step_is_refused(runner):
    # No warm-up of the learning rate: outputs and second moments grow thirtyfold, and none of it is an alarm.
    result = drill(runner, "weight:norm_out:scale=1e8:step=36:elements=64", "--rule", "adaptive", "--steps", 40)
    assert result["struck"] == "model.norm_out.weight"
    assert [(change["step"], change["elements"]) for change in result["changes"]] == [(36, 64)]
    assert (result["found"], result["steps_to_detect"]) == (True, 0)
    assert result["refused_steps"] == list(range(36, 41))


def test_an_intermittent_device_strikes_several_places_and_is_refused_where_it_shows(runner):
    fault = "gradient:norm:stick=inf:step=6:duration=9:chance=0.3:seed=1"
    result = drill(runner, fault, "--mode", "graph")
    assert len({change["where"] for change in result["changes"]}) > 1
    assert len(result["changes"]) < 9 * 5 * 0.6  # of the calls of five norms
    assert result["steps_to_detect"] == 0
    assert {change["step"] for change in result["changes"]} == set(result["refused_steps"])


@pytest.mark.slow
def test_the_story_for_people_says_the_same(runner):
    done = runner.asd("demo", "--fault", "gradient:norm_out:set=nan:step=9", "--steps", 12)
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "Struck model.norm_out in 1 step(s) from step 9 on: 1 element(s)."
    assert lines[1].endswith(" -> nan.")
    assert lines[2].startswith("Found after 0 step(s) at model.norm_out: value inf, not finite; also model.layers.0.")
    assert lines[3] == "Refused steps: 9."
    assert lines[4].startswith("First-level alarms before the fault: 0. Final loss ")
    assert done.err.startswith("  graph, rule threshold ")  # a log gets one line
    assert done.err.count("\n") == 1


@pytest.mark.slow
def test_a_fault_too_small_ends_with_code_1_and_changes_the_loss_hardly(runner):
    result = drill(runner, "gradient:norm_out:flip=0:step=9")
    assert not result["found"]
    assert (result["checkpoint"], result["refused_steps"], result["steps_to_detect"]) == (None, [], None)
    assert result["changes"][0]["elements"] == 1


@pytest.mark.slow
def test_a_fault_on_another_rank_never_strikes(runner):
    done = runner.asd("demo", "--fault", "gradient:norm_out:set=inf:step=9:rank=1", "--steps", 12)
    assert (done.code, done.out) == (1, "The fault never struck model.norm_out.\n")
