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
from asd.event import ABNORMAL, CODE, HEALTH, KINDS, VERDICTS, event_id
from tests.support.events import made_of

FIELDS = {
    "run": "run1",
    "rank": 3,
    "host": "node7",
    "device": "Ascend:3",
    "step": 40,
    "checkpoint": "model.norm_out",
    "value": 2.5e7,
    "limits": (1e6,),
    "level": Level.ERROR,
    "kind": "anomaly",
    "rule": "threshold",
    "feature": "l2",
    "reason": "value above the first absolute threshold 1000000",
    "refused": True,
    "time": 1_700_000_000.25,
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
    run=TEXTS,
    rank=st.integers(-1, 2**40),
    host=TEXTS,
    device=TEXTS,
    step=st.integers(0, 2**62),
    checkpoint=TEXTS,
    value=NUMBERS,
    limits=st.lists(NUMBERS, max_size=2).map(tuple),
    level=st.sampled_from(Level),
    kind=st.sampled_from(KINDS),
    micro_batch=st.integers(0, 2**31),
    verdict=st.sampled_from(["", *VERDICTS]),
    evidence=TEXTS,
    key=TEXTS,
    rule=TEXTS,
    feature=TEXTS,
    reason=TEXTS,
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


def test_the_code_is_soc_check_sensor_check_fail():
    number = int(CODE, 16)
    assert number >> 28 == 8  # three packed numbers follow
    assert (number >> 17 & 0x7FF, number >> 9 & 0xFF, number & 0x1FF) == (0x40, 0xC6, 0)
    assert HEALTH == "node type=SoC, sensor type=Check Sensor, event state=check fail"


def test_its_json_is_a_cloud_event_in_one_line():
    event = make()
    text = event.to_json()
    assert "\n" not in text
    cloud_event = json.loads(text)
    assert cloud_event.pop("data") == {
        **{name: value for name, value in FIELDS.items() if name != "time"},
        "limits": [1e6],
        "level": "first",
        "code": "80818C00",
        "node_type": "SoC",
        "sensor_type": "Check Sensor",
        "state": "check fail",
        "severity": "minor",
        "handling": "SeparateNPU",
        "assertion": "once",
        "micro_batch": 0,
        "verdict": "",
        "evidence": "",
        "key": "",
        "id_form": 2,
    }
    assert cloud_event == {
        "specversion": "1.0",
        "id": event.id,
        "source": "/asd/run1/3",
        "type": "org.mindspore.asd.anomaly",
        "subject": "model.norm_out",
        "time": "2023-11-14T22:13:20.250000+00:00",
        "datacontenttype": "application/json",
        "faultcode": "80818C00",
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_cloud_events_sdk_accepts_every_kind(kind):
    event = make(kind=kind, verdict="transient" if kind in ("replay", "isolation") else "")
    cloud_event = JSONFormat().read(CloudEvent, event.to_json())
    assert cloud_event.get_id() == event.id
    assert cloud_event.get_source() == "/asd/run1/3"
    assert cloud_event.get_type() == f"org.mindspore.asd.{kind}"
    assert cloud_event.get_subject() == "model.norm_out"
    assert cloud_event.get_time().timestamp() == event.time
    assert cloud_event.get_extension("faultcode") == "80818C00"
    assert cloud_event.get_data()["kind"] == kind


@given(EVENTS)
def test_the_cloud_events_sdk_accepts_every_event_and_hands_it_on_unchanged(event):
    format_ = JSONFormat()
    again = Event.from_json(format_.write(format_.read(CloudEvent, event.to_json())).decode())
    assert repr(again) == repr(event)


@given(EVENTS)
def test_its_source_is_a_uri_reference_without_a_character_that_needs_quoting(event):
    assert re.fullmatch(r"/asd/(?:[A-Za-z0-9_.~-]|%[0-9A-F]{2})*/-?[0-9]+", json.loads(event.to_json())["source"])


@given(EVENTS)
def test_its_json_is_what_the_standard_library_would_write(event):
    text = event.to_json()
    assert json.dumps(json.loads(text), ensure_ascii=False) == text


def test_the_subject_is_never_empty():
    assert json.loads(make(checkpoint="", kind="problem").to_json())["subject"] == "detector"


@given(EVENTS)
def test_what_is_written_can_be_read_back(event):
    again = Event.from_json(event.to_json())
    assert repr(again) == repr(event)  # in which nan equals nan
    assert again.id == event.id


@given(EVENTS)
def test_its_json_holds_no_number_that_json_lacks_and_a_valid_time(event):
    def refuse(constant):
        raise AssertionError(constant)

    cloud_event = json.loads(event.to_json(), parse_constant=refuse)
    assert datetime.fromisoformat(cloud_event["time"]).timestamp() == event.time
    assert cloud_event["id"] == event.id


@given(EVENTS)
def test_both_its_forms_are_one_line_as_grep_sees_it(event):
    for text in (event.to_json(), event.sentence()):
        assert not set("\n\r\v\f") & set(text)


def test_its_sentence_leaves_chinese_readable():
    assert make(reason="特征值异常").sentence().endswith('reason="特征值异常"')


def test_infinity_and_nan_become_texts():
    data = json.loads(make(value=math.nan, limits=(math.inf, -math.inf)).to_json())["data"]
    assert (data["value"], data["limits"]) == ("nan", ["inf", "-inf"])


def test_the_same_fact_has_the_same_id():
    assert make().id == make(value=1.0, time=0.0, reason="another", refused=False).id
    whose = {"host": make().host, "device": make().device}
    assert make().id == event_id("run1", 3, "model.norm_out", 40, "anomaly", **whose)


@pytest.mark.parametrize(
    "change",
    [
        {"run": "run2"},
        {"rank": 4},
        {"checkpoint": "a"},
        {"step": 41},
        {"kind": "problem"},
        {"host": "elsewhere"},
        {"device": "Ascend:9"},
    ],
)
def test_another_fact_has_another_id(change):
    assert make(**change).id != make().id


def test_a_key_tells_events_apart_that_agree_in_everything_else():
    assert len({make(key=key).id for key in ("", "disk full", "disk full again")}) == 3
    whose = {"host": make().host, "device": make().device}
    assert make(key="disk full").id == event_id("run1", 3, "model.norm_out", 40, "anomaly", "disk full", **whose)
    assert Event.from_json(make(key="disk full").to_json()).key == "disk full"


def test_a_key_does_not_melt_into_the_kind():
    assert event_id("r", 0, "a", 1, "anomaly", "x") != event_id("r", 0, "a", 1, 'anomaly", "x')


@pytest.mark.parametrize("name", ["micro_batch", "verdict", "evidence", "key"])
def test_an_event_from_before_a_field_was_added_is_read_with_its_default(name):
    event = Event.from_json(changed(**{name: None}))
    assert event == make()


@pytest.mark.parametrize("name", ["run", "rank", "host", "device", "step", "checkpoint", "value", "limits", "code"])
def test_an_event_without_a_field_that_always_was_is_refused(name):
    with pytest.raises(StateError, match=f"event field {name} is None"):
        Event.from_json(changed(**{name: None}))


@pytest.mark.parametrize(
    ("kind", "assertion"),
    [
        ("anomaly", "once"),
        ("follower", "once"),
        ("problem", "once"),
        ("replay", "once"),
        ("isolation", "occur"),
        ("recovery", "recover"),
    ],
)
def test_what_lasts_says_so(kind, assertion):
    assert make(kind=kind).assertion == assertion
    assert json.loads(make(kind=kind).to_json())["data"]["assertion"] == assertion


def test_its_sentence_has_what_only_some_events_have():
    sentence = make(kind="replay", micro_batch=2, verdict="persistent", evidence="asd_run/evidence/r").sentence()
    assert sentence.startswith("replay, code=80818C00 ")
    assert " run=run1 micro_batch=2 verdict=persistent evidence=asd_run/evidence/r event=" in sentence


def test_fields_that_touch_do_not_melt_into_one_id():
    assert event_id("run1", 1, "a", 12, "anomaly") != event_id("run", 11, "a", 12, "anomaly")
    assert event_id("a", 0, "b", 1, "anomaly") != event_id('a", 0, "b', 0, "b", 1, "anomaly")
    whose = ({}, {"host": "h"}, {"device": "h"}, {"key": "h"}, {"host": "h", "device": "h"})
    assert len({event_id("a", 0, "b", 1, "anomaly", **where) for where in whose}) == len(whose)


def test_its_sentence_has_the_keyword_and_every_field():
    assert make().sentence() == (
        "accuracy sensitivity feature abnormal: node type=SoC, sensor type=Check Sensor, event state=check fail, "
        "code=80818C00 level=first device=Ascend:3 rank=3 host=node7 step=40 checkpoint=model.norm_out value=2.5e+07 "
        f"limit=1e+06 feature=l2 rule=threshold refused=yes run=run1 event={make().id} "
        'reason="value above the first absolute threshold 1000000"'
    )


@pytest.mark.parametrize(
    ("kind", "head"), [("follower", "in the wake of another rank"), ("problem", "detector problem")]
)
def test_what_is_no_anomaly_does_not_carry_the_keyword_of_one(kind, head):
    sentence = make(kind=kind, level=Level.NORMAL, limits=()).sentence()
    assert ABNORMAL not in sentence
    assert sentence.startswith(f"{head}, code=80818C00 level=normal ")
    assert " limit=none " in sentence


@pytest.mark.parametrize(
    ("field", "value", "valid"),
    [
        ("run", 1, "a text"),
        ("host", ["h"], "a text"),
        ("device", None, "a text"),
        ("checkpoint", 0, "a text"),
        ("rule", {}, "a text"),
        ("feature", 1.5, "a text"),
        ("reason", None, "a text"),
        ("code", 80818, "a text"),
        ("code", "80818c00", "eight upper-case hex digits"),
        ("code", "80818C0", "eight upper-case hex digits"),
        ("rank", -2, "a whole number from -1 on"),
        ("rank", True, "a whole number from -1 on"),
        ("rank", "3", "a whole number from -1 on"),
        ("step", 1.5, "a whole number from 0 on"),
        ("step", None, "a whole number from 0 on"),
        ("value", "big", "a number"),
        ("value", None, "a number"),
        ("value", True, "a number"),
        ("value", [1], "a number"),
        ("value", 10**400, "a number"),
        ("limits", 1e6, "a list of numbers"),
        ("limits", ["x"], "a list of numbers"),
        ("limits", [{}], "a list of numbers"),
        ("level", "third", "normal, second, first"),
        ("level", 2, "normal, second, first"),
        ("level", ["first"], "normal, second, first"),
        ("kind", "rumour", "anomaly, follower, problem"),
        ("refused", 1, "true or false"),
        ("refused", "yes", "true or false"),
        ("micro_batch", -1, "a whole number from 0 on"),
        ("micro_batch", 1.5, "a whole number from 0 on"),
        ("verdict", "guilty", "transient, persistent, software, undetermined"),
        ("verdict", 1, "a text"),
        ("evidence", 1, "a text"),
        ("key", ["k"], "a text"),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_what_is_valid(field, value, valid):
    with pytest.raises(StateError) as caught:
        Event.from_json(changed(**{field: value}))
    sentence = str(caught.value)
    assert sentence.startswith(f"event field {field} is ")
    assert valid in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "1",
        "null",
        '"text"',
        "{}",
        '{"data": {}}',
        '{"data": {}, "time": 5}',
        "[" * 100_000,
        '{"data": {}, "time": "yesterday"}',
        '{"data": {}, "time": "0001-01-01T00:00:00"}',
    ],
)
def test_a_text_that_is_no_event_says_so(text):
    with pytest.raises(StateError, match=r"not an event: .*; valid is one CloudEvent in JSON\.|event field "):
        Event.from_json(text)


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


@pytest.mark.parametrize(("field", "value"), [("kind", "rumour"), ("code", "xyz"), ("code", "80818C00\n")])
def test_a_wrong_field_is_refused_when_an_event_is_made(field, value):
    with pytest.raises(StateError, match=f"event field {field} is "):
        make(**{field: value})


def test_an_event_can_not_be_changed():
    with pytest.raises(AttributeError):
        make().step = 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("time", "x"),
        ("time", 5),
        ("time", None),
        ("time", "2026-01-31T12:00:00"),
        ("time", "0001-01-01T00:00:00+14:00"),
        ("time", "9999-12-31T23:59:59-14:00"),
        ("specversion", "0.3"),
        ("specversion", None),
        ("data", None),
        ("data", []),
    ],
)
def test_a_bad_field_of_the_cloud_event_is_named(field, value):
    cloud_event = json.loads(make().to_json()) | {field: value}
    with pytest.raises(StateError, match=f"^event field {field} is "):
        Event.from_json(json.dumps(cloud_event))


def test_ids_are_those_of_the_events_that_were_written_before():
    assert event_id("run1", 0, "model.norm_out", 7, "anomaly") == "2f4028923c18e31431e0beddef4fbde0"
    assert make(id_form=1).id == "dbb738d6d2d21095186072b966d8911e"
    assert make(key="disk full", id_form=1).id == "745a9dfcf15d394ecf1c11d47a1f391c"


def test_what_an_earlier_version_wrote_keeps_the_id_it_had():
    cloud_event = json.loads(make().to_json())
    del cloud_event["data"]["id_form"]
    old = Event.from_json(json.dumps(cloud_event))
    assert old == make(id_form=1)
    assert Event.from_json(old.to_json()) == old
    with pytest.raises(StateError, match=r"^event field id_form is 3; valid is 1 or 2\.$"):
        Event.from_json(make().to_json().replace('"id_form": 2', '"id_form": 3'))


def test_the_kinds_and_words_are_those_that_others_read():
    assert KINDS == ("anomaly", "follower", "problem", "replay", "isolation", "recovery", "stress")
    assert VERDICTS == ("transient", "persistent", "software", "undetermined")


def test_a_line_break_in_a_name_is_written_as_its_number():
    assert "checkpoint=a\\x0ab\\x0d\\x0b\\x0c\\x85 " in make(checkpoint="a\nb\r\v\f\x85").sentence()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"step": -1}, "event field step is -1; valid is a whole number from 0 on."),
        ({"step": "x"}, "event field step is 'x'; valid is a whole number from 0 on."),
        ({"rank": -2}, "event field rank is -2; valid is a whole number from -1 on."),
        ({"host": 1}, "event field host is 1; valid is a text."),
        ({"limits": 1}, "event field limits is 1; valid is a list of numbers."),
        ({"value": "big"}, "event field value is 'big'; valid is a number, or one of the texts inf, -inf, nan."),
        ({"refused": 1}, "event field refused is 1; valid is true or false."),
        ({"level": "third"}, "event field level is 'third'; valid are normal, second, first."),
        ({"verdict": "x"}, "event field verdict is 'x'; valid are transient, persistent, software, undetermined."),
        ({"code": "x"}, "event field code is 'x'; valid are eight upper-case hex digits such as 80818C00."),
        (
            {"kind": "x"},
            "event field kind is 'x'; valid are anomaly, follower, problem, replay, isolation, recovery, stress.",
        ),
    ],
)
def test_the_sentence_about_a_wrong_field(change, sentence):
    with pytest.raises(StateError) as caught:
        Event.from_json(changed(**change))
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", "not an event: '[]'; valid is one CloudEvent in JSON."),
        ("{}", "event field specversion is None; valid is 1.0."),
        ('{"specversion": "1.0"}', "event field time is None; valid is a time such as 2026-01-31T12:00:00+00:00."),
        (
            '{"specversion": "1.0", "time": "2026-01-31T12:00:00+00:00"}',
            "event field data is None; valid is a JSON object.",
        ),
    ],
)
def test_the_sentence_about_what_is_no_event(text, sentence):
    with pytest.raises(StateError) as caught:
        Event.from_json(text)
    assert str(caught.value) == sentence


def test_a_long_text_that_is_no_event_is_told_in_part():
    with pytest.raises(StateError) as caught:
        Event.from_json("x" * 1000)
    assert "x" * 120 in str(caught.value)
    assert "x" * 121 not in str(caught.value)


@pytest.mark.parametrize(("rank", "step"), [(-1, 0), (0, 1)])
def test_an_unknown_rank_and_an_unknown_step_are_read(rank, step):
    event = Event.from_json(changed(rank=rank, step=step))
    assert (event.rank, event.step) == (rank, step)
