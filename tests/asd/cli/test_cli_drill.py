"""`asd drill`, as far as it goes without a training, and the progress that long work shows."""

import io
import os

import pytest

from asd.cli import main
from asd.cli.shared import progress
from asd.cli.shared.progress import Progress
from asd.injection import PATTERNS, TARGETS


@pytest.fixture(autouse=True)
def _clean(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith(("NPU_ASD_", "ASD_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "the following arguments are required: FAULT; see `asd drill --help`."),
        (["norm"], "fault has the value 'norm', which is not valid: valid is such as gradient:"),
        (["loss:a:flip=3:step=1"], "fault target has the value 'loss', which is not valid: valid are gradient, weight"),
        (["gradient:a:flip=64:step=1"], "fault amount has the value 64.0, which is not valid: valid is a bit from 0"),
        (["gradient:a:flip=3:step=41"], "FAULT has the value 'gradient:a:flip=3:step=41', which is not valid: valid is "
                                        "a fault whose step is from 1 to 40, see --steps."),
        (["gradient:a:flip=3:step=1", "--rule", "none"],
         "argument --rule: invalid choice: 'none' (choose from 'threshold', "),
        (["gradient:a:flip=3:step=1", "--steps", "0"], "FAULT has the value 'gradient:a:flip=3:step=1'"),
        (["gradient:a:flip=3:step=1", "extra"], "unrecognized arguments: extra; see `asd drill --help`."),
    ],
)  # fmt: skip
def test_wrong_usage_ends_with_one_sentence_and_code_2_and_leaves_nothing(capsys, tmp_path, options, sentence):
    assert main(["drill", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"asd: {sentence}")
    assert err.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_its_help_lists_every_target_and_pattern(capsys):
    assert main(["drill", "--help"]) == 0
    text = capsys.readouterr().out
    for name, meaning in {**TARGETS, **PATTERNS}.items():
        assert f"  {name:<12} {meaning}\n" in text


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


def test_a_terminal_is_not_flooded_but_sees_the_last_step(clock):
    stream = Terminal()
    shown = Progress("train", 1000, stream)
    for step in range(1, 1001):
        clock[0] += 0.001
        shown(step, 1.0)
    assert stream.getvalue().count("\r") < 15
    assert "] 1000/1000 loss" in stream.getvalue()


def test_work_that_ended_before_its_first_step_can_be_closed(clock):
    stream = io.StringIO()
    Progress("train", 0, stream).close()
    assert stream.getvalue() == "  " + "train".ljust(34) + " 0/0 steps, loss 0.0000, 0.0 s\n"
