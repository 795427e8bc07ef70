"""Figures in the documents are those of `benchmarks/results`, and none stands there by hand."""

import re
import subprocess
from pathlib import Path

import figures
import pytest
import tables
from markdown import prose
from tables import history

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


def test_a_figure_is_older_than_its_code_once_that_differs_from_the_commit(tmp_path, monkeypatch):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    monkeypatch.setattr(history, "RESULTS", tmp_path / "a" / "b")
    with pytest.raises(tables.NoHistoryError):
        history._differs("HEAD", ("code",))
    git("init", "--quiet")
    (tmp_path / "code").write_text("1")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    assert not history._differs("HEAD", ("code",))
    (tmp_path / "code").write_text("2")
    assert (history._differs("HEAD", ("code",)), history._differs("HEAD", ("other",))) == (True, False)


def test_the_right_device_is_counted_where_one_of_several_is_bad():
    cells = [line.split(" | ") for line in tables.TABLES["found_faults"]().splitlines()[2:]]
    assert all((row[-1] != "- |") == (" ranks" in row[0] and " link" not in row[0]) for row in cells)


_BY_HAND = re.compile(r"\d[\d.,]* ?(?:%|µs\b|ms\b|MiB\b|MB\b|GB\b)|\b\d[\d,]* of \d[\d,]*\b|\b\d\.\d+ times\b")
_COMPUTED = {"0.25 %", "0.4 %"}
_DEFINED = {"1 %", "5 %", "10 %"}
_ALLOWED = {
    "README.md": _DEFINED,
    "docs/costs.md": {"0.3 %", "1 %", "2 %", "3 %", "95 %", "10 µs", "40 µs"} | _COMPUTED,
}


@pytest.mark.parametrize("name", MEASURED)
def test_no_measured_figure_stands_outside_the_markers(name):
    text = figures.TABLE.sub("", prose(ROOT / name))
    found = {match.strip() for match in _BY_HAND.findall(text)}
    assert found <= _ALLOWED.get(name, set())
