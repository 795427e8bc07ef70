"""Records from JSON: what is wrong is said in one sentence, and nothing that is there counts as missing."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Meta

from asd import StateError
from asd.records import Count, Finite, Flag, Number, Rank, Text, fill, floats, load, load_if_there, parse, plain, read

NESTED = Annotated[dict[str, list[int]], Meta(description="an object of lists")]


@dataclass(kw_only=True)
class Thing:
    name: Text
    rank: Rank = 0
    size: Count = 0
    on: Flag = False
    value: Number = 0.0
    seconds: Finite = 0.0
    lists: NESTED = field(default_factory=dict)
    bare: list[int] = field(default_factory=list)

    def __post_init__(self):
        if self.name == "bad":
            raise StateError("its name is 'bad'.")


@pytest.mark.parametrize(
    ("data", "field", "valid"),
    [
        ({}, "name", "a text"),
        ({"name": 1}, "name", "a text"),
        ({"name": ["x" * 999]}, "name", "a text"),
        ({"name": "a", "rank": -2}, "rank", "from -1 on"),
        ({"name": "a", "rank": 2**63}, "rank", "from -1 on"),
        ({"name": "a", "size": True}, "size", "from 0 on"),
        ({"name": "a", "on": 0}, "on", "true or false"),
        ({"name": "a", "value": "1"}, "value", "inf, -inf, nan"),
        ({"name": "a", "seconds": math.inf}, "seconds", "a number"),
        ({"name": "a", "seconds": math.nan}, "seconds", "a number"),
        ({"name": "a", "lists": {"x.y": ["2"]}}, "lists", "an object of lists"),
        ({"name": "a", "bare": [None]}, "bare", "Expected `int`, got `null`"),
    ],
)
def test_what_is_wrong_is_named_with_its_value_and_what_is_valid(data, field, valid):
    with pytest.raises(StateError, match=rf"^thing field {field} is .{{1,80}}; .*{valid}\.$") as caught:
        fill(Thing, data, "thing")
    assert repr(data.get(field))[:80] in str(caught.value)


@pytest.mark.parametrize(("data", "sentence"), [({"name": "bad"}, "its name is 'bad'"), ([], "thing is []")])
def test_what_is_wrong_as_a_whole_is_told(data, sentence):
    with pytest.raises(StateError) as caught:
        fill(Thing, data, "thing")
    assert str(caught.value).startswith(sentence)


def test_what_is_unknown_is_passed_over_and_whole_numbers_are_numbers():
    thing = fill(Thing, {"name": "\udc80", "value": 1, "later": 3}, "thing")
    assert (thing.name, thing.value, type(thing.value)) == ("\udc80", 1.0, float)


def test_half_a_surrogate_pair_where_no_text_can_be_is_a_sentence():
    with pytest.raises(StateError, match="^thing holds half a surrogate pair"):
        fill(Thing, {"name": "a", "\ud800": 1}, "thing")


@pytest.mark.parametrize("version", [None, True, 1.0, "1", 2])
def test_a_record_of_another_version_is_refused(version):
    with pytest.raises(StateError, match=f"^thing has version {version!r}; .* 1\\.$"):
        read(json.dumps({"version": version, "name": "a"}), Thing, "thing", "one", version=1)


def test_numbers_that_are_not_finite_come_back_where_they_may_be():
    data = {"inf": "inf", "x": {"value": "nan", "deep": [{"value": ["-inf", "x", {"y": "inf"}]}]}}
    found = floats(data, "value")
    assert found["inf"] == "inf"
    assert math.isnan(found["x"]["value"])
    assert found["x"]["deep"] == [{"value": [-math.inf, "x", {"y": math.inf}]}]
    assert json.loads(json.dumps(plain(found), allow_nan=False)) == data
    text = '{"version": 1, "name": "a", "value": "inf"}'
    assert read(text, Thing, "thing", "", version=1, numbers=("value",)).value > 1


@pytest.mark.parametrize("text", ["", "[1]", "null", "{", "[" * 100_000, b"\xff"])
def test_a_text_that_is_no_object_is_shown_in_part(text):
    with pytest.raises(StateError, match=r"^not a thing: .* one\.$") as caught:
        parse(text, "thing", "one")
    assert len(str(caught.value)) < 300


def test_only_a_file_that_is_not_there_is_none(tmp_path):
    path = tmp_path / "a.json"
    assert load_if_there(path, "thing", "one") is None
    with pytest.raises(StateError, match=r"a\.json .*: No such file"):
        load(path, "thing", "one")
    path.symlink_to(path)  # it is there, and can't be read
    with pytest.raises(StateError, match=r"a\.json .*: Too many levels"):
        load_if_there(path, "thing", "one")
    with pytest.raises(StateError, match=r"can't be read: Not a directory\.$"):
        load_if_there(Path(__file__) / "a.json", "thing", "one")
    path.unlink()
    path.write_text('{"version": 1}')
    assert load_if_there(path, "thing", "one", version=1) == {}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", " is corrupt: Expecting "),
        ("[]", " is corrupt: it holds a list"),
        ("\udcff", " is corrupt: 'utf-8'"),
        ('{"version": 2}', " has version 2"),
        (" " * 99 + "{}", " can't be read: it has 101 bytes; the limit is 100."),
    ],
)
def test_a_file_that_holds_something_else_is_named(tmp_path, content, reason):
    path = tmp_path / "a.json"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(StateError) as caught:
        load(path, "thing", "one", version=1, most=100)
    assert str(caught.value).startswith(f"thing {path}{reason}")
