"""The progress that long work shows."""

import io

import pytest

from asd.cli.shared import progress
from asd.cli.shared.progress import Bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "silent"), [(io.StringIO(), False), (Terminal(), False), (Terminal(), True)])
def test_a_log_gets_one_line_a_terminal_a_bar_and_who_wants_silence_nothing(monkeypatch, stream, silent):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress.sys, "stderr", stream)
    bar = Bar("train", 4, silent=silent)
    for step in range(1, 5):
        now[0] += 1
        bar.show(step, f"{step}/4 steps")
    bar.end()
    *frames, last = stream.getvalue().split("\r")
    assert last.strip("\x1b[K") == ("" if silent else "  " + "train".ljust(34) + " 4/4 steps, 4.0 s\n")
    has_bar = stream.isatty() and not silent
    assert [frame.count("#") for frame in frames[1:]] == ([7, 15, 22, 30] if has_bar else [])
