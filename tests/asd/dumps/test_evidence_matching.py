"""Slots that another tool lists in another order find their partners."""

import math
from pathlib import Path

from asd.dumps.compare.matching import match_with
from asd.dumps.compare.rounding import difference_of, scale_of
from asd.dumps.formats.dump_folder import Dump
from asd.dumps.formats.slots import Entry, Slot, SlotForm

NAME = "Primitive.matmul.MatMul.0.backward"


def dump(tool, *shapes):
    slots = [Slot.of(SlotForm(f"output.{place}", "output", "Float32", shape)) for place, shape in shapes]
    return Dump(Path("dump.json"), Path(), framework="mindspore", tool=tool, entries={NAME: Entry(NAME, tuple(slots))})


def partners(tested, trusted):
    pairs = match_with(tested, trusted, None).partners(tested.entries[NAME], trusted.entries[NAME])
    return [(slot.suffix, other.suffix if other else None) for slot, other in pairs]


def test_gradients_of_an_operators_inputs_that_msprobe_lists_from_the_last_on_meet():
    ours, theirs = dump("mindspore-asd", (0, (4, 8)), (1, (8, 8))), dump("", (0, (8, 8)), (1, (4, 8)))
    assert partners(ours, theirs) == [("output.0", "output.1"), ("output.1", "output.0")]
    assert partners(theirs, ours) == [("output.0", "output.1"), ("output.1", "output.0")]


def test_a_gradient_that_msprobe_lists_first_as_the_one_before_has_none_meets_its_own():
    ours, theirs = dump("mindspore-asd", (1, (8, 8))), dump("", (0, (8, 8)))
    assert partners(ours, theirs) == [("output.1", "output.0")]


def test_two_dumps_of_one_tool_are_matched_by_place_alone():
    assert partners(dump("", (0, (4, 8)), (1, (8, 8))), dump("", (0, (8, 8)), (1, (4, 8)))) == [
        ("output.0", "output.0"),
        ("output.1", "output.1"),
    ]


def test_a_norm_that_float16_can_not_hold_tells_nothing_and_an_infinite_element_does():
    def slot(dtype, top, norm):
        return Slot.of(SlotForm("input.0", "input", dtype, (4, 4)), (top, -top, 0.0, norm))

    half, single = slot("Float16", 1e4, math.inf), slot("Float32", 1e4, 1.2e5)
    scale = scale_of([half])
    assert scale[0] > 0
    assert difference_of(single, half, scale) == difference_of(half, single, scale) == 0.0
    assert difference_of(slot("Float32", math.inf, math.inf), single, scale) == math.inf
