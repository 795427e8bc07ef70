"""The progress that long work shows."""

import io

import pytest

from asd.cli.shared import progress
from asd.cli.shared.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_log_gets_one_line_at_the_end(clock):
    stream = io.StringIO()
    Progress("train", 0, stream).close()
    assert stream.getvalue() == "  " + "train".ljust(34) + " 0/0 steps, loss 0.0000, 0.0 s\n"
    stream = io.StringIO()
    shown = Progress("train", 10, stream)
    for step in range(1, 11):
        clock[0] += 1.5
        shown(step, 2.5)
    assert stream.getvalue() == ""
    shown.close()
    assert stream.getvalue() == "  " + "train".ljust(34) + " 10/10 steps, loss 2.5000, 15.0 s\n"


def test_a_terminal_gets_a_bar_that_ends_in_the_same_line(clock):
    stream = Terminal()
    shown = Progress("train", 4, stream)
    for step in range(1, 5):
        clock[0] += 1
        shown(step, 2.5)
    shown.close()
    frames = stream.getvalue().split("\r")
    assert [frame.count("#") for frame in frames[1:-1]] == [7, 15, 22, 30]
    assert frames[2] == "  " + "train".ljust(34) + " [###############...............] 2/4 loss 2.5000 "
    assert frames[-1] == "\x1b[K  " + "train".ljust(34) + " 4/4 steps, loss 2.5000, 4.0 s\n"
