"""The progress that long work shows."""

import io

import pytest

from asd.cli.shared import progress
from asd.cli.shared.progress import Bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def show(bar, clock, steps, seconds):
    for step in range(1, steps + 1):
        clock[0] += seconds
        bar.show(step, f"{step}/{steps} steps")
    bar.end()


def test_a_log_gets_one_line_at_the_end_and_who_wants_silence_nothing(clock):
    stream = io.StringIO()
    show(Bar("train", 10, stream), clock, 10, 1.5)
    assert stream.getvalue() == "  " + "train".ljust(34) + " 10/10 steps, 15.0 s\n"
    stream = Terminal()
    show(Bar("train", 10, stream, silent=True), clock, 10, 1.5)
    assert stream.getvalue() == ""


def test_a_terminal_gets_a_bar_that_ends_in_the_same_line(clock):
    stream = Terminal()
    show(Bar("train", 4, stream), clock, 4, 1)
    frames = stream.getvalue().split("\r")
    assert [frame.count("#") for frame in frames[1:-1]] == [7, 15, 22, 30]
    assert frames[2] == "  " + "train".ljust(34) + " [###############...............] 2/4 steps "
    assert frames[-1] == "\x1b[K  " + "train".ljust(34) + " 4/4 steps, 4.0 s\n"
