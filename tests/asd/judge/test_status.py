"""The counts of a rank: what is added, and that they say the same in another process."""

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd import Level, StateError
from asd.judge.status import Status
from asd.records import members
from asd.verdict import Verdict
from tests.support.events import made_of

ORIGIN = {"run": "run1", "rank": 3, "host": "node7", "device": "Ascend:3"}
COUNTS = st.integers(0, 2**63 - 1)
MOMENTS = st.floats(0, 1e12)
TEXTS = st.text(max_size=20)
NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
STATUSES = st.builds(
    partial(made_of, Status),
    **dict.fromkeys(("run", "host", "device"), TEXTS),
    **dict.fromkeys(
        ("pid", "step", "steps", "checks", "non_finite", "refused", "problems", "evidence_dropped"), COUNTS
    ),
    **dict.fromkeys(("started", "written", "last_check", "step_seconds", "check_seconds"), MOMENTS),
    rank=st.integers(-1, 2**40),
    active=st.booleans(),
    anomalies=st.fixed_dictionaries({"first": COUNTS, "second": COUNTS}),
    dropped=st.dictionaries(TEXTS, COUNTS, max_size=3),
    checkpoints=st.dictionaries(TEXTS, st.tuples(NUMBERS, NUMBERS), max_size=3),
)


def changed(**data):
    return json.dumps({**json.loads(made_of(Status, **ORIGIN).to_json()), **data})


@given(STATUSES)
def test_what_is_written_is_one_line_of_json_without_a_number_that_json_lacks_and_can_be_read_back(status):
    def refuse(constant):
        raise AssertionError(constant)

    text = status.to_json()
    assert "\n" not in text
    assert set(json.loads(text, parse_constant=refuse)) == {"version", *members(status)}
    assert repr(Status.from_json(text)) == repr(status)  # in which nan equals nan


def test_a_status_from_before_a_field_was_added_is_read_with_its_default():
    data = json.loads(made_of(Status, **ORIGIN).to_json())
    for name in data.keys() - {"version", *ORIGIN}:
        assert Status.from_json(json.dumps({key: item for key, item in data.items() if key != name})) == made_of(
            Status, **ORIGIN
        )


@pytest.mark.parametrize(
    ("of", "field", "value", "valid"),
    [
        ("status", "step_seconds", "inf", "a number"),
        ("status", "anomalies", {"first": "1"}, "an object of whole numbers"),
        ("status", "checkpoints", {"a": [1, "x"]}, "an object of pairs of numbers"),
        ("status", "protections", [1], "an object"),
        ("protections", "places", {"outputs": "2"}, "an object of whole numbers"),
        ("protections", "missing", {"ASD_RULE": "slow"}, "an object of lists of texts"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_wrong_field_is_named_with_its_value_and_what_is_valid(of, field, value, valid):
    wrong = {field: value}
    with pytest.raises(StateError, match=rf"^{of} field {field} is .* {valid}\.$"):
        Status.from_json(changed(**(wrong if of == "status" else {of: wrong})))


def test_what_several_monitors_of_a_process_counted_is_summed_up_in_one_status():
    one = made_of(Status, **ORIGIN, started=1.0, written=5.0, active=True, step=7, steps=7)
    other = made_of(Status, **ORIGIN, started=2.0, written=4.0, step=3, steps=3, refused=1)
    one.add("n", Verdict(Level.NORMAL, "", 1.0, 2.0))
    other.add("Generator.n", Verdict(Level.NORMAL, "", 1.0, 4.0))
    other.anomalies["first"] = other.dropped["Sink"] = 2
    whole = Status.together([one, other])
    assert (whole.started, whole.written, whole.active, whole.step) == (1.0, 5.0, True, 7)
    assert (whole.steps, whole.checks, whole.refused) == (10, 2, 1)
    assert (whole.anomalies, whole.dropped) == ({"first": 2, "second": 0}, {"Sink": 2})
    assert set(whole.checkpoints) == {"n", "Generator.n"}
    assert set(one.checkpoints) == {"n"}
    assert Status.together([one]) is one
