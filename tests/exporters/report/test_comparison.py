"""The page of a comparison: what is open, what is folded, and how large it gets."""

import xml.etree.ElementTree as ET
from collections import Counter

import pytest

from asd.dumps.compare.comparison import CallRows, ComparedRow
from asd.dumps.compare.first_difference import Divergence
from asd.dumps.compare.runs import Pair
from asd.dumps.formats.slots import Entry, Slot, SlotForm
from asd.exporters.report.comparison import render

XHTML = "{http://www.w3.org/1999/xhtml}"
SLOT = Slot.of(SlotForm("output.0", "output", "Float32", (4, 4)), (1.5, -1.0, 0.0, 2.0))


def call(name, *, bad=False, **more):
    row = ComparedRow(name, name, SLOT, SLOT, same=not bad, **more)
    row.verdict = row.verdict or ("No" if bad else "Yes")
    return CallRows(name, [row], Entry(name, (SLOT,)), Entry(name, (SLOT,)))


def page(calls, first=None, parents=None):
    found = Divergence(first, first, (f"{first}.output.0",), "operator", "bits", 1, "it computed wrongly")
    pair = Pair(0, 3, "tensor", len(calls), len(calls), Counter(Yes=1), divergence=found if first else None, compared=1)
    return ET.fromstring(render(pair, calls, parents or {}, "<b>what & why</b>").partition("\n")[2])


def words(element):
    return "".join(element.itertext())


def opened(root):
    """The summaries of what is open at first sight."""
    return [words(each[0]) for each in root.iter(f"{XHTML}details") if "open" in each.attrib]


def test_the_tree_is_open_along_the_way_to_the_first_difference_and_folded_where_the_runs_are_alike():
    names = [f"Cell.model.layers.{i}.norm.LayerNorm.forward.0" for i in range(4)]
    root = page([call(name, bad=i >= 2) for i, name in enumerate(names)], names[2])
    folders = [f"{name} 4 calls, 2 differ" for name in ("model", "layers")]
    assert opened(root) == [*folders, "2 1 call, 1 differ", "norm 1 call, 1 differ", names[2]]
    items = [words(each) for each in root.iter(f"{XHTML}li") if each.find(f"{XHTML}details") is None]
    assert items == ["0 1 call, alike", "1 1 call, alike"]
    struck = [words(each) for each in root.iter(f"{XHTML}tr") if each.get("class") == "struck"]
    assert struck
    assert all("1.5, -1, 0, 2" in each for each in struck)
    assert "<b>what & why</b>" in words(root)


def test_calls_of_functions_stand_in_the_module_around_them():
    function, around = "Mint.add.0.forward", "Cell.model.head.Dense.forward.0"
    assert opened(page([call(function, bad=True)], function, {function: around}))[:2] == [
        "model 1 call, 1 differ",
        "head 1 call, 1 differ",
    ]


@pytest.mark.parametrize("name", ["Mint.add.0.forward", f"Cell{1500 * '.a'}.Dense.forward.0"])
def test_modules_around_one_another_or_a_thousand_deep_make_a_page(name):
    assert opened(page([call(name, bad=True)], name, {name: name}))


@pytest.mark.parametrize(("difference", "differs"), [(1e-7, False), (1e-3, True)])
def test_a_row_that_rounding_explains_is_alike(difference, differs):
    root = page([call("Cell.fc.Dense.forward.0", bad=True, verdict="Yes", difference=difference, bound=1e-6)])
    assert ("1 differ" in words(root)) is differs


def test_twenty_thousand_calls_that_differ_make_a_page_of_few_megabytes():
    names = [f"Cell.model.layers.{i // 100}.mlp.{i % 100}.Dense.forward.0" for i in range(20_000)]
    root = page([call(name, bad=True) for name in names], names[-1])
    assert len(ET.tostring(root)) < 2e6
    assert names[-1] in opened(root)
