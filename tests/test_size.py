"""The house gets no larger: lines of each room, files, names."""

from pathlib import Path

import pytest

from tests import changed, rooms

pytestmark = pytest.mark.skipif(not (rooms.ROOT / "pyproject.toml").is_file(), reason="only the source tree has this")


def test_no_room_has_more_lines_than_its_bound():
    assert {room.name: number for room, number in rooms.lines().items() if number > room.most} == {}


def test_the_source_has_no_more_lines_and_files_than_it_had():
    lines = sum(number for room, number in rooms.lines().items() if room.name not in rooms.NO_SOURCE)
    assert lines <= rooms.MOST_SOURCE
    assert len(rooms.source_files(*rooms.SOURCE)) <= rooms.MOST_FILES


def test_a_change_is_tested_by_the_folder_that_mirrors_it():
    asked = [
        Path("asd/rules/base.py"),
        Path("asd/event.py"),
        Path("README.md"),
        Path("tests/test_size.py"),
        Path("Makefile"),
    ]
    found = changed.tests_of(asked)
    assert found == [*changed.ALWAYS, "tests/asd/rules", "tests/asd/test_event.py", "tests/docs"]
