"""Which checkpoints get series of their own."""

import math

import pytest

from asd import ConfigError
from asd.exporters.prometheus.checkpoint_choice import CheckpointChoice

CHECKPOINTS = {
    "layers.0.norm": (1.0, 100.0),
    "layers.1.norm": (99.0, 100.0),
    "layers.10.norm": (5.0, 10.0),
    "head": (math.nan, 10.0),
    "embedding": (1e30, math.inf),
}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("none", []),
        ("all", sorted(CHECKPOINTS)),
        ("top:1", ["head"]),
        ("top:3", ["head", "layers.1.norm", "layers.10.norm"]),
        ("top:10000", sorted(CHECKPOINTS)),
        (r"layers\.\d\.", ["layers.0.norm", "layers.1.norm"]),
        ("^norm", []),
        ("(?i)HEAD", ["head"]),
    ],
)
def test_a_text_chooses_checkpoints(text, names):
    assert CheckpointChoice.parse(text).choose(CHECKPOINTS) == names


def test_nearness_to_the_limit_decides_and_then_the_name():
    assert CheckpointChoice.parse("top:2").choose({"c": (1.0, 2.0), "b": (1.0, 2.0), "a": (1.0, 2.0)}) == ["a", "b"]
    assert CheckpointChoice.parse("top:1").choose({"a": (1.0, 2.0), "b": (0.0, 0.0)}) == ["b"]


def test_nothing_is_chosen_without_a_wish():
    assert CheckpointChoice().choose(CHECKPOINTS) == []


@pytest.mark.parametrize(
    "text", ["", "top:", "top:0", "top:10001", "top:-1", "top:x", "top:1.5", "top:٣", "(", "[a", "a**"]
)
def test_a_wrong_choice_is_told_with_what_is_valid(text):
    with pytest.raises(ConfigError, match=r"--checkpoints has the value .*none, all, top:N") as error:
        CheckpointChoice.parse(text)
    assert error.value.value == text
