"""A crash of MindSpore behind the last line of a program is told from one within it: only then a test is made again."""

import sys
from pathlib import Path

import pytest

AT_THE_END = 'import atexit, ctypes; atexit.register(getattr(ctypes.CDLL(None), "raise"), 11); print("DONE")'
WITHIN = 'import ctypes; print("STEP 1"); ctypes.string_at(0)'
THREAD = "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); "
BOTH = "import subprocess, sys; [subprocess.run([sys.executable, '-c', each]) for each in sys.argv[2:]]"


@pytest.mark.parametrize("thread", ["", THREAD])
def test_a_rank_that_crashes_behind_its_last_line_makes_the_test_run_again(runner, thread):
    with pytest.raises(Exception, match="Segmentation fault") as raised:
        runner.run(sys.executable, "-c", thread + AT_THE_END, "--ranks", **runner.quiet)
    assert raised.typename == "MindSporeCrashed"


@pytest.mark.parametrize("thread", ["", THREAD])
def test_a_rank_that_crashes_within_has_crashed(runner, thread):
    done = runner.run(sys.executable, "-c", thread + WITHIN, "--ranks", **runner.quiet)
    assert done.code == -11
    assert "Segmentation fault" in done.err


@pytest.mark.parametrize("order", [(AT_THE_END, WITHIN), (WITHIN, AT_THE_END)])
def test_a_crash_within_one_rank_counts_whatever_the_other_does(runner, order):
    done = runner.run(sys.executable, "-c", BOTH, "--ranks", *order, **runner.quiet)
    assert done.err.count("Segmentation fault") == 2


def test_a_program_that_is_no_rank_has_crashed_wherever_it_did(runner):
    assert runner.run(sys.executable, "-c", AT_THE_END, **runner.quiet).code == -11


def test_only_that_error_makes_a_test_run_again(runner):
    (runner.folder / "conftest.py").write_text("class MindSporeCrashed(Exception): pass\n")
    (runner.folder / "test_it.py").write_text(
        "from conftest import MindSporeCrashed\ntried = []\n"
        "def test_crash():\n    tried.append(1)\n    if len(tried) < 3: raise MindSporeCrashed('x')\n"
        "def test_failure():\n    tried.append(1)\n    assert not tried, tried\n"
    )
    settings = Path(__file__).parents[2] / "pyproject.toml"
    done = runner.run(sys.executable, "-m", "pytest", "-c", settings, "--rootdir", ".", "--import-mode=prepend", ".")
    assert "1 failed, 1 passed, 2 rerun" in done.out
    assert "AssertionError: [1, 1, 1, 1]" in done.out
