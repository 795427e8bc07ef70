"""The verdict about a step that was made again, from its answers alone."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd.diagnosis.rerun import find
from asd.diagnosis.spread import CAP, Spread, StepResult
from asd.rules.reading import AVERAGED, WEIGHT_GRADIENT, Reading

LIMIT = 1000.0


def answer(*norms, loss=0.5):
    """Checkpoints c0, c1 ... with these norms."""
    return StepResult.of([loss], [Reading(f"c{i}", value, i) for i, value in enumerate(norms)])


def abnormal(found):
    return any(reading.value > LIMIT for reading in found.readings)


BAD, OTHER_BAD, GOOD, OTHER_GOOD = answer(5e6), answer(6e6), answer(1.0), answer(1.5)
difference = Spread().difference


def shaken(result, noise):
    """The same with other last bits."""
    readings = [each._replace(value=each.value * (1 + noise)) for each in result.readings]
    return StepResult.of([result.loss[0] * (1 - noise)], readings)


@pytest.mark.parametrize("noise", [0.0, 2.0**-22])
@pytest.mark.parametrize(
    ("original", "again", "repeated", "siblings", "verdict"),
    [
        (BAD, GOOD, GOOD, [], "transient"),
        (BAD, GOOD, GOOD, [GOOD], "transient"),
        (BAD, GOOD, None, [GOOD, GOOD], "transient"),
        (BAD, BAD, BAD, [GOOD], "persistent"),
        (BAD, BAD, None, [GOOD], "persistent"),
        (BAD, BAD, BAD, [BAD, BAD], "software"),
        (BAD, BAD, None, [BAD], "software"),
        (BAD, BAD, None, [], "undetermined"),
        (BAD, BAD, BAD, [], "undetermined"),
        (BAD, GOOD, None, [], "undetermined"),
        (BAD, GOOD, OTHER_GOOD, [], "undetermined"),
        (BAD, OTHER_BAD, OTHER_BAD, [GOOD], "persistent"),
        (BAD, GOOD, GOOD, [OTHER_GOOD], "transient"),
        (BAD, GOOD, None, [OTHER_GOOD], "undetermined"),
        (BAD, BAD, BAD, [OTHER_BAD], "undetermined"),
        (BAD, BAD, BAD, [GOOD, OTHER_GOOD], "undetermined"),
        (BAD, BAD, OTHER_BAD, [GOOD], "undetermined"),
    ],
)
def test_each_outcome_has_its_verdict_also_where_last_bits_vary(original, again, repeated, siblings, verdict, noise):
    again, siblings = shaken(again, noise), [shaken(each, 2 * noise) for each in siblings]
    repeated, spread = repeated and shaken(repeated, 3 * noise), Spread()
    spread.learn(GOOD, shaken(GOOD, noise))  # an audit
    finding = find(original, again, repeated=repeated, siblings=siblings, abnormal=abnormal, spread=spread)
    assert finding.verdict == verdict
    assert finding.reason


def test_a_device_of_which_nothing_is_known_shows_by_a_third_run_what_its_last_bits_do():
    def of(original, *more):
        first, second = (shaken(each, turn * 2.0**-22) for turn, each in enumerate(more, 1))
        return find(original, first, repeated=second, abnormal=abnormal)

    assert (of(BAD, GOOD, GOOD).verdict, of(BAD, BAD, BAD).same_twice) == ("transient", True)
    by_chance = shaken(BAD, 2.0**-22)  # the last bits of two runs of three are alike
    assert find(BAD, by_chance, repeated=by_chance, abnormal=abnormal).same_twice
    assert find(BAD, BAD, siblings=[GOOD], abnormal=abnormal, unsteady="rank 2: 2 and 3").verdict == "undetermined"
    first, again, repeated, sibling = (answer(value, 1.0, 1.0, 1.0) for value in (5e6, 6e6, 7e6, 1.0))
    found = find(first, again, repeated=repeated, siblings=[sibling], abnormal=abnormal)
    assert found.verdict == "undetermined"  # each time another answer, at one place alone


@pytest.mark.parametrize(
    ("learned", "differs", "same"),
    [
        ([1.0] * 9, 1 + 2.0**-52, 1.0),  # where two runs never differ bits count
        ([1 + 2.0**-24] * 9, 1 + 2.0**-12, 1 + 2.0**-19),  # no less than a few last places
        ([1 + 2.0**-16] * 9, 1 + 2.0**-10, 1 + 2.0**-13),
        ([1 + 2.0**-10.5] * 9, 1 + 2.0**-9.9, 1 + 2.0**-10.1),  # and no more than the cap
        ([1 + 2.0**-11] + [1.0] * 8, 1 + 2.0**-12, 1 + 2.0**-15),  # one that is unlike the others of its kind
    ],
)
def test_two_runs_are_the_same_within_what_healthy_ones_differ_by(learned, differs, same):
    spread, usual = Spread(), answer(*[1.0] * 9)
    spread.learn(usual, answer(*learned))
    others = [1.0] * 8
    assert spread.difference(usual, answer(differs, *others)) == f"c0 is 1 and {differs:.9g}"
    assert spread.difference(usual, answer(same, *others)) == ""
    assert (spread.difference(usual, answer(*[1.0] * 9, loss=0.6)), spread.most <= CAP) == ("the loss differs", True)
    spread.learn(usual, answer(1.5, *others))
    assert spread.difference(usual, answer(2.0, *others)) == spread.surprise(usual, answer(2.0, *others)) == ""
    assert spread.surprise(usual, answer(1.0, 2.0, *others[1:])) in ("", "c1 is 1 and 2")
    spread.learn(usual, usual)  # a fault does not make a place wild for ever
    assert spread.difference(usual, answer(2.0, *others)) == "c0 is 1 and 2"
    assert [spread.learn(usual, answer(*[bad] * 9)) for bad in (1.0, 3.0)] == ["", "c0 is 1 and 3"]


def test_a_number_a_loss_or_a_checkpoint_is_a_difference_and_a_sibling_s_loss_or_other_product_is_none():
    assert difference(answer(1.0, 2.0), answer(1.0, 2.0)) == ""
    assert difference(answer(1.0), answer(1.0, loss=0.6)) == "the loss differs"
    assert difference(answer(1.0), answer(1.0, loss=0.6), with_loss=False) == ""
    assert difference(answer(1.0), answer(1.0)._replace(loss=())) == ""
    assert difference(answer(1.0), answer(1.0, 2.0)) == "c1 was checked in one run only"
    assert difference(answer(0.0), answer(-0.0)) != ""
    score = Reading("dense.checksum", 0.5, 9, kind="checksum")
    one, other = (StepResult((), (*answer(1.0).readings, *more)) for more in ((score,), ()))
    assert difference(one, other) == difference(other, one) == ""
    assert difference(one, StepResult((), (*answer(1.0).readings, score._replace(value=2.0)))) != ""


def test_a_weight_gradient_is_compared_with_its_kind_whatever_the_loss_scale_in_others():
    norm, spread = Reading("norm", 2.0**24), Spread()
    good, bad = (StepResult.of([0.5], [norm, Reading("weight", size, 1, WEIGHT_GRADIENT)]) for size in (0.3, 5.0))
    found = [(spread.learn(good, shaken(good, 2.0**-22)), spread.surprise(good, bad))[1] for _ in range(3)]
    finding = find(bad, bad, siblings=[good], abnormal=lambda step: step.readings[1].value > 2.0, spread=spread)
    assert (finding.verdict, found) == ("persistent", ["", "", "weight is 0.3 and 5"])


def test_what_the_ranks_have_in_common_is_no_answer_of_one():
    own, mean = Reading("c0", 1.0, 1), Reading("averaged.c0", 2.0, 2, kind=AVERAGED)
    other = mean._replace(value=3.0)
    assert StepResult.of([], [mean, own]) == StepResult.of([], [own, other]) == StepResult.of([], [own])


@given(st.lists(st.floats(), max_size=2), st.lists(st.tuples(st.floats(), st.integers()), max_size=5))
def test_an_answer_comes_back_from_its_text_bit_for_bit(loss, rows):
    sent = StepResult.of(loss, [Reading(f"c{i}", *row) for i, row in enumerate(rows)])
    came = StepResult.from_json(json.dumps(sent))
    assert difference(sent, came) == ""
    assert [reading.order for reading in came.readings] == sorted(order for _, order in rows)
