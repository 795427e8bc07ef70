"""The verdict about a step that was made again, from its answers alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd.diagnosis.rerun import StepResult, assignment, difference, find
from asd.rules.reading import AVERAGED, Reading

LIMIT = 1000.0


def answer(*norms, loss=b"\1\2"):
    """Checkpoints c0, c1 ... with these norms."""
    return StepResult.of(loss, [Reading(f"c{i}", value, i) for i, value in enumerate(norms)])


def abnormal(found):
    return any(reading.value > LIMIT for reading in found.readings)


BAD, OTHER_BAD, GOOD, OTHER_GOOD = answer(5e6), answer(6e6), answer(1.0), answer(1.5)


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
def test_each_outcome_has_its_verdict(original, again, repeated, siblings, verdict):
    finding = find(original, again, repeated=repeated, siblings=siblings, abnormal=abnormal)
    assert finding.verdict == verdict
    assert finding.reason


def test_nothing_is_believed_where_healthy_ranks_do_not_repeat_a_step():
    finding = find(BAD, BAD, siblings=[GOOD], abnormal=abnormal, unsteady="rank 2: the loss differs")
    assert (finding.verdict, finding.same_twice) == ("undetermined", False)
    assert "rank 2" in finding.reason


def test_the_reason_says_why_nothing_is_known_without_a_sibling():
    assert "no sibling" in find(BAD, BAD, abnormal=abnormal).reason


def test_the_reason_names_the_place_and_both_values():
    finding = find(answer(1.0, 5e6, 7e6), answer(1.0, 2.0, 3.0), repeated=answer(1.0, 2.0, 3.0), abnormal=abnormal)
    assert finding.verdict == "transient"
    assert "c1 is 5000000 and 2" in finding.reason


def test_a_number_a_loss_or_a_checkpoint_is_a_difference_and_a_sibling_s_loss_is_none():
    assert difference(answer(1.0, 2.0), answer(1.0, 2.0)) == ""
    assert difference(answer(1.0), answer(1.0, loss=b"\1\3")) == "the loss differs"
    assert difference(answer(1.0), answer(1.0, loss=b"\1\3"), with_loss=False) == ""
    assert difference(answer(1.0), answer(1.0, loss=b"")) == ""
    assert difference(answer(1.0), answer(1.0, 2.0)) == "c1 was checked in one run only"
    assert difference(answer(0.0), answer(-0.0)) != ""


def test_what_the_ranks_have_in_common_is_no_answer_of_one():
    own, mean = Reading("c0", 1.0, 1), Reading("averaged.c0", 2.0, 2, kind=AVERAGED)
    other = mean._replace(value=3.0)
    assert StepResult.of(b"", [mean, own]) == StepResult.of(b"", [own, other]) == StepResult.of(b"", [own])


@given(st.binary(max_size=8), st.lists(st.tuples(st.floats(), st.integers()), max_size=5))
def test_an_answer_comes_back_from_its_text_bit_for_bit(loss, rows):
    sent = StepResult.of(loss, [Reading(f"c{i}", *row) for i, row in enumerate(rows)])
    came = StepResult.from_json(sent.to_json())
    assert difference(sent, came) == ""
    assert came.loss == sent.loss
    assert [reading.order for reading in came.readings] == sorted(order for _, order in rows)


ranks = st.integers(2, 40).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=1)))


@given(ranks)
def test_every_suspect_has_a_sibling_and_every_rank_one_batch(case):
    size, suspects = case
    runs = assignment(size, suspects)
    assert len(runs) == size
    for suspect in suspects:
        assert any(batch == suspect for rank, batch in enumerate(runs) if rank != suspect)
    if 2 * len(suspects) <= size:
        assert all(runs[suspect] == suspect for suspect in suspects)
        assert all(batch in suspects for batch in runs)


def test_a_sibling_that_checked_other_products_gave_no_other_answer():
    score = Reading("dense.checksum", 0.5, 9, kind="checksum")
    one, other = (StepResult("", (*answer(1.0).readings, *more)) for more in ((score,), ()))
    assert difference(one, other) == difference(other, one) == ""
    assert difference(one, StepResult("", (*answer(1.0).readings, score._replace(value=2.0)))) != ""
