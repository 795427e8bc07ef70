"""Slots that another tool lists in another order find their partners."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from asd.dumps.formats.dump_folder import Dump
from asd.dumps.formats.slots import Entry, Slot
from asd.dumps.pairing import matching
from asd.dumps.pairing.matching import match_names
from asd.dumps.pairing.rounding import difference_of, scale_of

NAME = "Primitive.matmul.MatMul.0.backward"


def dump(tool, *shapes):
    slots = [Slot(f"output.{place}", "output", "Float32", shape) for place, shape in shapes]
    return Dump(Path("dump.json"), Path(), framework="mindspore", tool=tool, entries={NAME: Entry(NAME, tuple(slots))})


def partners(tested, trusted):
    pairs = match_names(tested, trusted).partners(tested.entries[NAME], trusted.entries[NAME])
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
        ("output.0", "output.0"), ("output.1", "output.1")
    ]  # fmt: skip


def test_a_norm_that_float16_can_not_hold_tells_nothing_and_an_infinite_element_does():
    def slot(dtype, top, norm):
        return Slot("input.0", "input", dtype, (4, 4), (top, -top, 0.0, norm))

    half, single = slot("Float16", 1e4, math.inf), slot("Float32", 1e4, 1.2e5)
    scale = scale_of([half])
    assert scale.rms > 0
    assert difference_of(single, half, scale) == difference_of(half, single, scale) == 0.0
    assert difference_of(slot("Float32", math.inf, math.inf), single, scale) == math.inf


def test_gradients_that_fit_both_ways_are_paired_by_what_is_in_them():
    def slots(*tops):
        return [Slot(f"output.{i}", "output", "Float32", (2,), (top, 0.0, 0.0, top)) for i, top in enumerate(tops)]

    assert not matching._are_turned(slots(1.0, 2.0), slots(1.0, 2.0))
    assert matching._are_turned(slots(1.0, 2.0), slots(2.0, 1.0))


def calls(mode, given, made=None):
    """Calls of one name whose input and output have these norms."""
    entries = {}
    for number, (norm, result) in enumerate(zip(given, made or given, strict=True)):
        name = f"Cell.fc.Dense.forward.{number}"
        slots = [Slot(f"{state}.0", state, "Float32", (4,), (value, -value, value / 3, value))
                 for state, value in (("input", norm), ("output", result))]  # fmt: skip
        entries[name] = Entry(name, tuple(slots))
    return Dump(Path("dump.json"), Path(), framework="mindspore", mode=mode, entries=entries)


def numbers(tested, trusted):
    found = match_names(tested, trusted).calls
    assert sorted(found.values()) == sorted(trusted.entries)
    return [int(found[name][-1]) for name in tested.entries]


def test_calls_that_a_graph_numbers_otherwise_meet_those_that_take_and_give_the_same():
    graph, pynative = calls("graph", [3.0, 1.0, 2.0]), calls("pynative", [1.0, 2.0, 3.0])
    assert numbers(graph, pynative) == [2, 0, 1]
    assert numbers(pynative, graph) == [1, 2, 0]
    assert numbers(calls("pynative", [3.0, 1.0, 2.0]), pynative) == [0, 1, 2]
    assert numbers(graph, calls("graph", [1.0, 2.0, 3.0])) == [0, 1, 2]


def test_of_calls_that_take_the_same_that_is_met_which_gives_the_same():
    graph = calls("graph", [1.0, 1.0], [5.0, 7.0])
    assert numbers(graph, calls("pynative", [1.0, 1.0], [7.0, 5.0])) == [1, 0]
    assert numbers(graph, calls("pynative", [1.0, 1.0], [5.0, 7.0])) == [0, 1]
    same = calls("graph", [1.0, 1.0, 1.0], [5.0, 5.0, 9.0])
    assert numbers(same, calls("pynative", [1.0, 1.0, 1.0], [5.0, 5.0, 5.0])) == [0, 1, 2]


def test_a_wrong_call_meets_the_one_that_takes_the_same_and_what_is_like_no_other_keeps_its_number():
    healthy = calls("pynative", [1.0, 2.0, 3.0])
    assert numbers(calls("graph", [3.0, 1.0, 2.0], [99.0, 1.0, 2.0]), healthy) == [2, 0, 1]
    assert numbers(calls("graph", [70.0, 80.0, 90.0]), healthy) == [0, 1, 2]
    assert numbers(calls("graph", [3.0, 2.0, 99.0]), healthy) == [2, 1, 0]
    assert numbers(calls("graph", [1.0, 2.0, 3.0], [1.0, 3.0, 3.0]), healthy) == [0, 1, 2]


def test_what_goes_into_a_module_may_be_counted_in_another_order_than_what_comes_out():
    graph, pynative = calls("graph", [2.0, 1.0], [5.0, 7.0]), calls("pynative", [1.0, 2.0], [5.0, 7.0])
    assert numbers(graph, pynative) == [0, 1]
    name = "Cell.fc.Dense.forward.{}.input.0"
    assert match_names(graph, pynative).slots == {
        name.format(0): name.format(1), name.format(1): name.format(0)
    }  # fmt: skip
    wrong = calls("graph", [80.0, 1.0], [5.0, 7.0])
    assert name.format(0) not in match_names(wrong, pynative).slots


def with_tensors(folder, found, inputs, outputs):
    """These tensors for the calls, all of which have the same statistics."""
    folder.mkdir()
    for number, (name, entry) in enumerate(found.entries.items()):
        slots = []
        for slot, values in zip(entry.slots, (inputs[number], outputs[number]), strict=True):
            file = f"{name}.{slot.suffix}.npy"
            np.save(folder / file, np.array(values, np.float32))
            slots.append(replace(slot, data_name=file))
        found.entries[name] = Entry(name, tuple(slots))
    return replace(found, data_dir=folder)


def test_tensors_whose_elements_stand_in_another_order_are_told_apart_by_the_elements(tmp_path):
    up, down, mixed = [1, 2, 3, 4], [4, 3, 2, 1], [2, 4, 1, 3]
    same = [1.0, 1.0]
    graph = with_tensors(tmp_path / "graph", calls("graph", same), [up, down], [mixed, up])
    eager = with_tensors(tmp_path / "eager", calls("pynative", same), [down, up], [up, mixed])
    assert numbers(graph, eager) == [1, 0]
    beside = with_tensors(tmp_path / "beside", calls("graph", same), [up, down], [up, mixed])
    name = "Cell.fc.Dense.forward.{}.input.0"
    assert numbers(beside, eager) == [0, 1]
    assert match_names(beside, eager).slots == {name.format(0): name.format(1), name.format(1): name.format(0)}


def test_a_tensor_that_can_not_be_read_is_told_by_its_statistics(tmp_path):
    graph = with_tensors(tmp_path / "graph", calls("graph", [2.0, 1.0]), [[1], [2]], [[1], [2]])
    for file in (tmp_path / "graph").iterdir():
        file.write_bytes(b"none")
    eager = with_tensors(tmp_path / "eager", calls("pynative", [1.0, 2.0]), [[2], [1]], [[2], [1]])
    assert numbers(graph, eager) == [1, 0]
