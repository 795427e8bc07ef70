"""The event: a CloudEvent 1.0 that says the same wherever it is read."""

import json
import math
import re
from datetime import datetime
from functools import partial

import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from asd import Event, Level, StateError
from asd.event import ABNORMAL, CAUSES, KINDS, VERDICTS, event_id
from asd.handler.inputs.cursor import MOST_EVENT_BYTES
from tests.support.events import made_of

FIELDS = {
    **{"run": "run1", "rank": 3, "host": "node7", "device": "Ascend:3", "step": 40, "checkpoint": "model.norm_out"},
    **{"value": 2.5e7, "limits": (1e6,), "level": Level.ERROR, "kind": "anomaly", "rule": "threshold", "feature": "l2"},
    **{"reason": "value above the first absolute threshold 1000000", "refused": True, "time": 1_700_000_000.25},
}
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.sampled_from(
        ["", "特征值检测", 'a "quoted" name', "two\nlines\r\nand\ttabs", "\\", "\0", "\u2028", "{}", "null"]
    ),
)
NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
EVENTS = st.builds(
    partial(made_of, Event),
    **dict.fromkeys(("run", "host", "device", "checkpoint", "incident", "evidence"), TEXTS),
    **dict.fromkeys(("key", "rule", "feature", "reason"), TEXTS),
    rank=st.integers(-1, 2**40),
    step=st.integers(0, 2**62),
    value=NUMBERS,
    limits=st.lists(NUMBERS, max_size=2).map(tuple),
    level=st.sampled_from(Level),
    kind=st.sampled_from(KINDS),
    verdict=st.sampled_from(["", *VERDICTS]),
    cause=st.sampled_from(["", *CAUSES]),
    refused=st.booleans(),
    time=st.integers(0, 10**14).map(lambda microseconds: microseconds / 1e6),
    code=st.integers(0, 2**32 - 1).map("{:08X}".format),
)


def make(**changes):
    return made_of(Event, **{**FIELDS, **changes})


def changed(**data):
    """The JSON of an event with some fields of its data replaced; None takes a field away."""
    cloud_event = json.loads(make().to_json())
    cloud_event["data"].update(data)
    cloud_event["data"] = {name: value for name, value in cloud_event["data"].items() if value is not None}
    return json.dumps(cloud_event)


def test_its_json_is_a_cloud_event_in_one_line():
    event = make()
    text = event.to_json()
    assert "\n" not in text
    cloud_event = json.loads(text)
    empty = "verdict incident cause evidence key serial model firmware driver cann board recovered_by"
    kind = {"code": "80818C00", "node_type": "SoC", "sensor_type": "Check Sensor", "state": "check fail"}
    kind |= {"severity": "minor", "handling": "SeparateNPU", "assertion": "once", "level": "first"}
    kept = {name: value for name, value in FIELDS.items() if name != "time"}
    kept |= {"limits": [1e6], "device_number": -1, "healed": False}
    assert cloud_event.pop("data") == {**kept, **kind, **dict.fromkeys(empty.split(), "")}
    what = {"specversion": "1.0", "source": "/asd/run1/3", "type": "org.mindspore.asd.anomaly"}
    what |= {"subject": "model.norm_out", "time": "2023-11-14T22:13:20.250000+00:00"}
    assert cloud_event == {**what, "id": event.id, "datacontenttype": "application/json", "faultcode": "80818C00"}


@given(EVENTS)
def test_the_cloud_events_sdk_accepts_every_event_and_what_is_written_is_read_back(event):
    format_ = JSONFormat()
    for text in (event.to_json(), format_.write(format_.read(CloudEvent, event.to_json())).decode()):
        again = Event.from_json(text)
        assert repr(again) == repr(event)  # in which nan equals nan
        assert again.id == event.id


@given(EVENTS)
def test_every_json_reader_and_grep_take_it_as_it_is(event):
    def refuse(constant):
        raise AssertionError(constant)

    text = event.to_json()
    cloud_event = json.loads(text, parse_constant=refuse)
    assert json.dumps(cloud_event, ensure_ascii=False) == text
    assert datetime.fromisoformat(cloud_event["time"]).timestamp() == event.time
    assert cloud_event["subject"] == (event.checkpoint or "detector")
    assert re.fullmatch(r"/asd/(?:[A-Za-z0-9_.~-]|%[0-9A-F]{2})*/-?[0-9]+", cloud_event["source"])
    for line in (text, event.sentence()):
        assert not set("\n\r\v\f") & set(line)


@pytest.mark.parametrize(("kind", "assertion"), [("problem", "once"), ("isolation", "occur"), ("recovery", "recover")])
def test_what_lasts_says_so(kind, assertion):
    assert make(kind=kind).assertion == json.loads(make(kind=kind).to_json())["data"]["assertion"] == assertion


def test_the_same_fact_has_the_same_id():
    assert make().id == make(value=1.0, time=0.0, reason="another", refused=False).id


@pytest.mark.parametrize(
    ("field", "value"),
    dict(run="b", rank=4, checkpoint="a", step=41, kind="problem", host="n", device="Ascend:9", key="x").items(),
)
def test_another_fact_has_another_id(field, value):
    assert make(**{field: value}).id != make().id


@pytest.mark.parametrize("other", [*({each: None} for each in ("verdict", "evidence", "key", "incident")), {"old": 1}])
def test_an_event_from_before_a_field_was_added_or_left_out_is_read(other):
    assert Event.from_json(changed(**other)) == make()


@pytest.mark.parametrize("name", ["host", "limits"])
def test_an_event_without_a_field_that_always_was_is_refused(name):
    with pytest.raises(StateError, match=f"event field {name} is None"):
        Event.from_json(changed(**{name: None}))


def test_fields_that_touch_do_not_melt_into_one_id():
    assert event_id("run1", 1, "a", 12, "anomaly") != event_id("run", 11, "a", 12, "anomaly")
    assert event_id("a", 0, "b", 1, "anomaly") != event_id('a", 0, "b', 0, "b", 1, "anomaly")
    assert event_id("r", 0, "a", 1, "anomaly", "x") != event_id("r", 0, "a", 1, 'anomaly", "x')
    whose = ({}, {"host": "h"}, {"device": "h"}, {"key": "h"}, {"host": "h", "device": "h"})
    assert len({event_id("a", 0, "b", 1, "anomaly", **where) for where in whose}) == len(whose)


def test_its_sentence_has_the_keyword_and_every_field():
    assert make().sentence() == (
        "accuracy sensitivity feature abnormal: node type=SoC, sensor type=Check Sensor, event state=check fail, "
        "code=80818C00 level=first device=Ascend:3 rank=3 host=node7 step=40 checkpoint=model.norm_out value=2.5e+07 "
        f"limit=1e+06 feature=l2 rule=threshold refused=yes run=run1 event={make().id} "
        'reason="value above the first absolute threshold 1000000"'
    )


def test_a_follower_or_a_problem_of_the_detector_looks_like_no_alarm():
    sentence = make(kind="follower", level=Level.NORMAL, limits=()).sentence()
    assert ABNORMAL not in sentence
    assert " code=80818C00 level=normal " in sentence
    assert " limit=none " in sentence
    sentence = make(kind="problem", level=Level.NORMAL, checkpoint="", reason="the disk\nis full").sentence()
    assert sentence == "detector problem on rank 3 in step 40: the disk\\x0ais full"


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode(errors="replace")))
def test_no_text_causes_another_error(text):
    with pytest.raises(StateError):
        Event.from_json(text)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(field=st.sampled_from([*FIELDS, "code", "data"]), junk=JUNK)
def test_no_junk_in_a_field_causes_another_error(field, junk):
    cloud_event = json.loads(make().to_json())
    (cloud_event if field in ("time", "data") else cloud_event["data"])[field] = junk
    try:
        event = Event.from_json(json.dumps(cloud_event))
    except StateError:
        return
    Event.from_json(event.to_json())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("time", 5),
        ("time", "2026-01-31T12:00:00"),
        ("time", "0001-01-01T00:00:00+14:00"),
        ("time", "9999-12-31T23:59:59-14:00"),
        ("time", "9999-12-31T23:59:59.999999+00:00"),
        ("specversion", "0.3"),
        ("data", []),
        ("step", "x"),
        *((name, "x") for name in ("level", "verdict", "code", "kind", "recovered_by")),
        *((name, "x" * 513) for name in ("run", "host", "device", "checkpoint", "rule", "feature", "key", "incident")),
    ],
)
def test_a_bad_field_is_named_with_what_is_valid(field, value):
    cloud_event = json.loads(make().to_json())
    (cloud_event if field in cloud_event else cloud_event["data"])[field] = value
    with pytest.raises(StateError, match=rf"^event field {field} is .*; .+\.$"):
        Event.from_json(json.dumps(cloud_event))


@pytest.mark.parametrize(
    ("rule", "reason", "by"),
    [
        ("driver", "recovered: check fail", "vendor"),
        ("adaptive", "Ascend:3 on node7: it had no fault for 48 h, so it may work again.", "handler"),
        ("adaptive", "its strikes turned out to be software or data, so it may work again.", "handler"),
        ("adaptive", "it had no faults", "person"),
    ],
)
def test_who_recovered_a_device_is_read_from_the_sentence_of_an_old_event_and_of_no_other(rule, reason, by):
    told = {"kind": "recovery", "rule": rule, "reason": reason}
    assert Event.from_json(changed(**told, recovered_by=None)).recovered_by == by
    assert Event.from_json(changed(**told)).recovered_by == ""


def test_the_serial_of_a_device_is_no_part_of_the_id_for_its_agent_adds_it_later():
    assert make(serial="SN7", device_number=3).id == make().id
    sentence = make(kind="replay", verdict="persistent", serial="SN7", device_number=0, incident="7").sentence()
    assert sentence.startswith("replay, code=80818C00 ")
    assert " run=run1 verdict=persistent incident=7 serial=SN7 device_number=0 event=" in sentence
    assert " serial=" not in make().sentence()


def test_a_line_break_in_a_name_is_written_as_its_number_and_chinese_stays_readable():
    assert make(reason="特征值异常").sentence().endswith('reason="特征值异常"')
    assert "checkpoint=a\\x0ab\\x0d\\x0b\\x0c\\x85 " in make(checkpoint="a\nb\r\v\f\x85").sentence()


@pytest.mark.parametrize("character", ["x", "\0", "特", "\U0001f600", "\udc80"])
def test_an_event_of_the_longest_fields_has_at_most_64_kib(character):
    names = ("run", "host", "device", "checkpoint", "rule", "feature", "key")
    more = {"evidence": 2048 * character, "reason": 2000 * character, "limits": (-math.pi,) * 16, "rank": 2**63 - 1}
    longest = make(**dict.fromkeys(names, 512 * character), **more)
    text = longest.to_json()
    assert 6000 < len(text.encode(errors="backslashreplace")) <= MOST_EVENT_BYTES
    assert Event.from_json(text.encode(errors="backslashreplace").decode()) == longest


def test_a_reason_that_is_too_long_says_that_its_end_was_cut_off():
    cut = make(reason="x" * 1_000_000)
    assert (len(cut.reason), cut.reason[-36:]) == (2000, " ... (cut, it had 1000000 characters)"[-36:])
    assert Event.from_json(cut.to_json()) == cut
