"""The house gets no larger: lines of each room, files, names."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests import changed, rooms

pytestmark = pytest.mark.skipif(not (rooms.ROOT / "pyproject.toml").is_file(), reason="only the source tree has this")


def test_no_room_has_more_lines_than_its_bound():
    assert {room.name: number for room, number in rooms.lines().items() if number > room.bound} == {}


def test_the_source_has_no_more_lines_and_files_than_it_had():
    lines = sum(number for room, number in rooms.lines().items() if room.name not in rooms.NO_SOURCE)
    assert lines <= rooms.MOST_SOURCE + rooms.SLACK
    assert len(rooms.source_files(*rooms.SOURCE)) <= rooms.MOST_FILES


def test_no_two_public_classes_have_one_name():
    names = Counter(name for _, text in rooms.texts() for name in re.findall(r"^class ([A-Z]\w*)", text, re.MULTILINE))
    assert [name for name, number in names.items() if number > 1] == []


def test_the_formatter_decides_the_form_of_every_file():
    files = rooms.source_files(*rooms.SOURCE, "tests", "benchmarks", "docs", "examples", "deploy")
    mark = "# fmt" + ": "
    assert [path for path in files if mark in (rooms.ROOT / path).read_text()] == []


def test_no_docstring_begins_with_a_question():
    begins = re.compile(r'^ *r?"""(?:What|Whether|That|Those|Of|Says|How|Who)\b', re.MULTILINE)
    assert [path for path, text in rooms.texts() if begins.search(text)] == []


def test_no_room_imports_a_private_name_of_another():
    found = [
        f"{path}: {line}"
        for path, text in rooms.texts()
        for module, line in re.findall(r"^ *from asd\.?([\w.]*) (import .*\b_[a-z].*)$", text, re.MULTILINE)
        if not f"asd.{module}".startswith(".".join(("asd", *path.parent.parts)).replace("asd.asd", "asd"))
    ]
    assert found == []


def test_a_change_is_tested_by_the_folder_that_mirrors_it():
    asked = ("asd/rules/base.py", "asd/event.py", "README.md", "tests/test_size.py", "Makefile")
    found = changed.tests_of(map(Path, asked))
    assert found == [*changed.ALWAYS, "tests/asd/rules", "tests/asd/test_event.py", "tests/docs"]
