"""The quick way to read an event's line finds, checks and refuses what the thorough one does."""

import json

import pytest

from asd import Event, Level
from asd.cli.shared.event_head import read_head
from asd.errors import StateError
from asd.event import LEVEL_NAMES
from tests.support.events import made_of

FIELDS = {
    "run": "run1", "rank": 3, "host": "node7", "device": "Ascend:3", "step": 9, "checkpoint": "model.norm_out",
    "value": 2.5e7, "limits": (1e6, 1e9), "level": Level.ERROR, "kind": "replay", "rule": "threshold", "feature": "l2",
    "reason": "特征值 too large", "refused": True, "time": 1_800_000_000.123456, "verdict": "transient", "key": "k",
    "micro_batch": 2, "evidence": "asd_run/evidence",
}  # fmt: skip
WHOLE = json.loads(made_of(Event, **FIELDS).to_json())


def line(**changes):
    """An event's line with other data; what is None is left out, and `time` stands outside of the data."""
    when = changes.pop("time", WHOLE["time"])
    data = {name: value for name, value in {**WHOLE["data"], **changes}.items() if value is not None}
    return json.dumps({**WHOLE, "time": when, "data": data})


@pytest.mark.parametrize(
    "text",
    [
        made_of(Event, **FIELDS).to_json(),
        made_of(Event, **{**FIELDS, "value": float("inf"), "limits": ()}).to_json(),
        made_of(Event, **{**FIELDS, "value": float("nan"), "run": "half \udcff"}).to_json(),
        line(value=7, limits=[1], id_form=None, key=None, micro_batch=None),
        line(time="2027-01-15T09:00:00+01:00"), line(time="2027-01-15T08:00:00Z"), line(more={"unknown": [1]}),
    ],
)  # fmt: skip
def test_it_reads_what_the_event_says(text):
    event, head = Event.from_json(text), read_head(text)
    for name in head.__struct_fields__:
        expected = LEVEL_NAMES[event.level] if name == "level" else getattr(event, name)
        found = getattr(head, name)
        assert (tuple(found) if name == "limits" else found) == pytest.approx(expected, nan_ok=True), name


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[]", "junk", line()[:-1], line() + "}", line(rank=-2), line(rank=1.5), line(rank="0"), line(run=7),
        line(step=2**63), line(level="third"), line(level=1), line(kind="rumour"), line(verdict="guilty"),
        line(code="80818c00"), line(code=None), line(refused=1), line(limits=1.0), line(value="big"), line(id_form=3),
        line(time="2027-01-15T08:00:00"), line(time="yesterday"), line(time=1.8e9),
        line().replace('"1.0"', '"0.3"', 1),
    ],
)  # fmt: skip
def test_it_refuses_what_is_no_event_in_the_same_words(text):
    with pytest.raises(StateError) as thorough:
        Event.from_json(text)
    with pytest.raises(StateError) as quick:
        read_head(text)
    assert str(quick.value) == str(thorough.value)


def test_two_have_the_same_identity_exactly_when_they_have_the_same_id():
    variants = [
        {}, {"time": 5.0, "value": 1.0, "reason": "again"}, {"id_form": 1}, {"id_form": 1, "host": "other"},
        {"host": "", "device": ""}, {"host": "", "device": "", "id_form": 1}, {"key": ""}, {"host": "other"},
        {"device": "node7", "host": "Ascend:3"}, {"rank": 33}, {"step": 10}, {"checkpoint": ""}, {"kind": "stress"},
        {"run": "half \udcff"}, {"run": "half \udcff", "value": float("inf")}, {"run": "half \ufffd"},
    ]  # fmt: skip
    events = [made_of(Event, **{**FIELDS, **changes}) for changes in variants]
    identities = [read_head(event.to_json()).identity for event in events]
    for one, identity in zip(events, identities, strict=True):
        for other, other_identity in zip(events, identities, strict=True):
            assert (one.id == other.id) == (identity == other_identity), (one, other)
