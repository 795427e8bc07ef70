"""Following files: every complete line once, whatever happens to the file or the reader."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from asd import StateError
from asd.rundir.follow import Follower


class Folder:
    """A folder with a log `x` and its rotated parts, and a follower of them."""

    def __init__(self, path):
        self.path = path
        self.x, self.x1, self.x2 = path / "x", path / "x.1", path / "x.2"
        self.follower = self.new()

    def files(self):
        return [self.x2, self.x1, self.x]

    def new(self, state=None, **options):
        return Follower(self.files, state, **options)

    def texts(self, limit=10_000):
        return [line.text for line in self.follower.poll(limit)]

    def restart(self):
        self.follower = self.new(json.loads(json.dumps(self.follower.state())))


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def add(path, data):
    with path.open("ab") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


def test_lines_come_once_with_their_place(folder):
    add(folder.x, "one\ntwo ä\nthree\n")
    lines = folder.follower.poll()
    found = [(line.path, line.offset, line.text) for line in lines]
    assert found == [(folder.x, 0, "one"), (folder.x, 4, "two ä"), (folder.x, 11, "three")]
    assert folder.follower.poll() == []
    add(folder.x, "four\n")
    assert folder.texts() == ["four"]


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"\n\r\none\n\n\ntwo\n", ["one", "two"]),
        (b"a\0b\n", ["a\0b"]),
        (b"\xff\xfe bad\ngood\n", ["\ufffd\ufffd bad", "good"]),
        ("line\u2028separator \x85 \x0b\x0c\x1c\n".encode(), ["line\u2028separator \x85 \x0b\x0c\x1c"]),
    ],
    ids=["CRLF", "empty", "NUL inside", "no UTF-8", "other line breaks"],
)
def test_what_a_line_is(folder, data, texts):
    add(folder.x, data)
    assert folder.texts() == texts


class Rotating(type(Path())):
    """A path that rotates the log at the moment it is used for the so-manieth time."""

    left = None

    def __fspath__(self):
        if Rotating.left is not None:
            Rotating.left -= 1
            if Rotating.left < 0:
                Rotating.left = None
                folder = Path(str(self.parent))
                (folder / "x.1").rename(folder / "x.2")
                (folder / "x").rename(folder / "x.1")
                add(folder / "x", "five\n")
        return str(self)


@pytest.mark.parametrize("moment", range(8))
def test_a_rotation_in_the_middle_of_a_poll_neither_loses_nor_doubles_nor_reorders(tmp_path, moment):
    folder = Folder(tmp_path)
    follower = Follower(lambda: [Rotating(path) for path in folder.files()])
    add(folder.x1, "one\n")
    add(folder.x, "two\n")
    assert [line.text for line in follower.poll()] == ["one", "two"]
    add(folder.x, "three\n")
    Rotating.left = moment
    texts = [line.text for _ in range(3) for line in follower.poll()]
    assert Rotating.left is None, "the moment never came"
    assert texts == ["three", "five"]


def test_a_state_that_is_written_anew_into_the_same_file_is_read_anew_each_time(folder):
    keys = []
    for state in ("healthy", "an alarm", "an alarm", "fine now", "an alarm"):
        folder.x.write_text(f"NPU ID : 3\n{state}\n")
        lines = folder.follower.poll()
        keys += [line.key for line in lines if line.text == "an alarm"]
        folder.restart()
    assert len(keys) == len(set(keys)) == 2


def test_a_file_that_is_gone_for_a_while_is_not_read_again(folder, tmp_path):
    add(folder.x, "one\n")
    assert folder.texts() == ["one"]
    folder.x.rename(tmp_path / "elsewhere")
    assert [folder.texts() for _ in range(5)] == [[]] * 5
    (tmp_path / "elsewhere").rename(folder.x)
    add(folder.x, "two\n")
    assert folder.texts() == ["two"]


def test_files_with_the_same_first_line_are_told_apart(folder):
    add(folder.x2, "head\n")
    add(folder.x1, "head\na\n")
    add(folder.x, "head\nb\n")
    assert folder.texts() == ["head", "head", "a", "head", "b"]
    add(folder.x2, "c\n")
    add(folder.x1, "d\n")
    assert folder.texts() == ["c", "d"]


def test_a_file_counts_once_however_many_names_it_has(folder):
    add(folder.x, "one\n")
    os.link(folder.x, folder.x1)
    folder.x2.symlink_to(folder.x)
    assert folder.texts() == ["one"]


def test_a_line_has_the_same_key_after_a_rename_and_for_another_follower(folder):
    add(folder.x, "one\ntwo\n")
    first = {line.text: line.key for line in folder.follower.poll()}
    folder.x.rename(folder.x1)
    add(folder.x1, "three\n")
    add(folder.x, "one\nfour\n")
    again = [(line.text, line.key) for line in folder.new().poll()]
    assert dict(again[:2]) == first
    assert len({key for _, key in again}) == 5


def test_what_was_not_read_of_a_deleted_file_is_counted(folder):
    add(folder.x, "one\ntwo\n")
    assert folder.texts(1) == ["one"]
    folder.x.unlink()
    for _ in range(3):
        assert folder.texts() == []
    assert folder.follower.lost == 1


def test_a_line_that_is_too_long_is_passed_over_and_counted(folder):
    folder.follower = folder.new(longest=10)
    add(folder.x, "0123456789\n0123456789a\nshort\n")
    assert folder.texts() == ["0123456789", "short"]
    assert folder.follower.skipped == 1


def test_a_long_line_that_comes_in_pieces_is_read_once_even_across_a_restart(folder):
    add(folder.x, "one\n" + "x" * 3_000_000)
    assert folder.texts() == ["one"]
    place = next(iter(folder.follower.state()["files"].values()))["offset"]
    assert place == 3_000_004
    folder.restart()
    add(folder.x, "x" * 3_000_000 + "\ntwo\n")
    assert folder.texts() == ["two"]
    assert folder.follower.skipped == 1


def test_one_poll_takes_bounded_memory_however_long_the_lines(folder):
    add(folder.x, ("x" * 999_999 + "\n") * 40)
    counts = [len(folder.follower.poll()) for _ in range(9)]
    assert (sum(counts), max(counts)) == (40, 5)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path)])
def test_what_is_no_file_is_named_as_long_as_it_is_there_and_the_other_files_are_read(folder, make):
    make(folder.x1)  # opening a pipe would wait for a writer
    add(folder.x, "one\n")
    assert (folder.texts(), list(folder.follower.unreadable)) == (["one"], [str(folder.x1)])
    folder.x1.rename(folder.path / "elsewhere")
    assert (folder.texts(), folder.follower.unreadable) == ([], {})


def test_a_file_of_another_user_is_named_and_the_others_are_read(folder, monkeypatch):
    add(folder.x1, "secret\n")
    add(folder.x, "one\n")
    open_file = os.open

    def guarded(path, *flags):
        if path == folder.x1:
            raise PermissionError(13, "Permission denied", path)
        return open_file(path, *flags)

    monkeypatch.setattr(os, "open", guarded)
    assert (folder.texts(), list(folder.follower.unreadable)) == (["one"], [str(folder.x1)])


def test_a_folder_that_can_not_be_listed_for_a_while_costs_nothing(folder):
    def files():
        if closed:
            raise PermissionError(13, "Permission denied", str(folder.path))
        return [folder.x]

    folder.follower, read = Follower(files), []
    for closed in (False, True, True, False):
        add(folder.x, "one\n")
        read.append(len(folder.texts()))
        assert folder.follower.unreadable == ({str(folder.path): "Permission denied"} if closed else {})
    assert read == [1, 0, 0, 3]


@pytest.mark.parametrize("lines", [1, 2])
def test_a_file_that_came_while_a_round_went_on_is_read_before_nothing_more_is_said(folder, lines):
    add(folder.x, "".join(f"{number}\n" for number in range(lines)))
    folder.x.replace(folder.x1)
    assert [folder.texts(1) for _ in range(lines)] == [[str(number)] for number in range(lines)]
    add(folder.x, "new\n")
    assert folder.texts() == ["new"]


def test_catching_up_opens_each_file_about_once_however_many_polls_it_takes(tmp_path, monkeypatch):
    paths = [tmp_path / f"{number}" for number in range(100)]
    for path in paths:
        add(path, f"{path.name} one\ntwo\n")
    follower = Follower(lambda: paths)
    opened, open_file = [], os.open
    monkeypatch.setattr(os, "open", lambda path, *args: (opened.append(path), open_file(path, *args))[1])
    polls = 0
    while lines := follower.poll(5):
        polls += 1
        assert len(lines) == 5
    assert polls == 40
    assert len(opened) <= 3 * len(paths)


def test_its_state_stays_small_when_files_come_and_go(folder):
    for number in range(400):
        folder.x.write_text(f"{number}\n")
        assert folder.texts() == [str(number)]
        if number % 3:
            folder.x.unlink()
    assert len(json.dumps(folder.follower.state())) < 60_000


def test_a_file_that_did_not_change_is_not_opened(folder, monkeypatch):
    add(folder.x, "one\n")
    os.utime(folder.x, (1_700_000_000, 1_700_000_000))
    assert folder.texts() == ["one"]
    opened = []
    monkeypatch.setattr(os, "open", lambda path, *_: opened.append(path))
    assert folder.texts() == []
    assert opened == []


GOOD = {"path": "x", "fingerprint": "f", "head": "h", "head_size": 1, "offset": 3}


@pytest.mark.parametrize(
    ("state", "field"),
    [
        ({}, "version"),
        ({"version": 1, "files": {"1:2": {}}}, "path"),
        ({"version": 1, "files": {"1:2": {**GOOD, "offset": -1}}}, "offset"),
    ],
)
def test_a_wrong_state_is_refused(state, field):
    with pytest.raises(StateError, match=f"field {field} "):
        Follower(list, state)


class Rotations(RuleBasedStateMachine):
    """A log that is written, torn, rotated and deleted, and a follower that is restarted.

    The model: `written` holds every line that was completed, in order; each must come exactly once. Lines are numbered,
    as the time stamps of real ones tell them apart.
    """

    def __init__(self):
        super().__init__()
        self.folder = Folder(Path(tempfile.mkdtemp(prefix="asd-follow-")))
        self.written = []
        self.read = []
        self.torn = ""  # of the last line of x
        self.count = 0

    def teardown(self):
        self.drain()
        assert self.read == self.written
        assert self.folder.follower.lost == 0
        shutil.rmtree(self.folder.path)

    def drain(self):
        while texts := self.folder.texts():
            self.read += texts

    @rule(count=st.integers(1, 5), size=st.sampled_from([0, 1, 300, 2000]), end=st.sampled_from(["\n", "\r\n"]))
    def write(self, count, size, end):
        for _ in range(count):
            self.count += 1
            text = f"{self.torn}{self.count}{'x' * size}"
            add(self.folder.x, text.removeprefix(self.torn) + end)
            self.written.append(text)
            self.torn = ""

    @rule(size=st.sampled_from([0, 1, 1500]))
    def write_a_part(self, size):
        self.count += 1
        part = f"part{self.count}{'x' * size} "
        add(self.folder.x, part)
        self.torn += part

    @rule(limit=st.sampled_from([1, 2, 10_000]))
    def poll(self, limit):
        self.read += self.folder.texts(limit)

    @rule()
    def restart(self):
        self.folder.restart()

    @precondition(lambda self: self.folder.x.exists())
    @rule()
    def rotate_by_renaming(self):
        if self.folder.x2.exists():
            self.drain()
        if self.folder.x1.exists():
            self.folder.x1.replace(self.folder.x2)
        self.folder.x.replace(self.folder.x1)
        self.torn = ""  # whoever writes next begins a new file

    @precondition(lambda self: self.folder.x.exists())
    @rule()
    def delete(self):
        self.drain()
        self.folder.x.unlink()
        self.torn = ""

    @invariant()
    def what_was_read_is_what_was_written_first(self):
        assert self.read == self.written[: len(self.read)]


Rotations.TestCase.settings = settings(stateful_step_count=30)
TestRotations = Rotations.TestCase
