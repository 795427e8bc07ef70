"""Figures in the documents are those of `benchmarks/results`, and none stands there by hand."""

import re
from pathlib import Path

import figures
import pytest
import tables
from markdown import prose

ROOT = Path(__file__).resolve().parents[2]
PAGES = list(figures.documents())
MEASURED = ("README.md", "README.zh.md", "docs/costs.md")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_figure_is_what_the_results_say(path):
    assert figures.differences(path.read_text(encoding="utf-8")) == []


def test_a_table_that_was_changed_by_hand_is_found_and_put_right():
    text = "a\n<!-- table: acting -->\n| x |\n<!-- end -->\n"
    assert figures.differences(text) != []
    right = figures.filled(text)
    assert tables.TABLES["acting"]() in right
    assert figures.differences(right) == []
    assert "<!--" not in figures.without_markers(right)


_BY_HAND = re.compile(r"\d[\d.,]* ?(?:%|µs\b|ms\b|MiB\b|MB\b|GB\b)|\b\d[\d,]* of \d[\d,]*\b|\b\d\.\d+ times\b")
_ALLOWED = {"docs/costs.md": {"0.3 %", "1 %", "2 %", "3 %", "95 %", "10 µs", "40 µs"}}


@pytest.mark.parametrize("name", MEASURED)
def test_no_measured_figure_stands_outside_the_markers(name):
    text = figures.TABLE.sub("", prose(ROOT / name))
    found = {match.strip() for match in _BY_HAND.findall(text)}
    assert found <= _ALLOWED.get(name, set())
