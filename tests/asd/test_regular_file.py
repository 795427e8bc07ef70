"""Files that anybody may have put there."""

import os

import pytest

from asd.regular_file import open_regular, read_regular


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "file").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a writer
    return tmp_path


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR | os.O_CREAT | os.O_TRUNC])
@pytest.mark.parametrize(("name", "reason"), [("link", "symbolic link"), ("pipe", "no regular file")])
def test_a_link_or_a_pipe_is_neither_opened_nor_changed_and_keeps_nobody_waiting(folder, flags, name, reason):
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=reason) as caught:
        open_regular(folder / name, flags)
    assert caught.value.filename == str(folder / name)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert (folder / "file").read_text() == "precious"


def test_a_link_that_may_be_followed_is_and_a_pipe_stays_refused(folder):
    assert read_regular(folder / "link", links=True) == b"precious"
    with pytest.raises(OSError, match="no regular file"):
        read_regular(folder / "pipe", links=True)


def test_a_file_has_as_many_bytes_as_it_may_have_or_is_not_read(folder):
    assert read_regular(folder / "file", 8) == b"precious"
    with pytest.raises(OSError, match="it has 8 bytes; the limit is 7"):
        read_regular(folder / "file", 7)
