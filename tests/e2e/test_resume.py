"""A training that is killed and resumed ends as if nothing had happened, its rules included."""

import json
import os
import random
import signal
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "resumable.py"
STEPS = 24


def strict(history):
    """The history as text, in which nan equals nan."""
    return {name: [json.dumps(point) for point in points] for name, points in history.items()}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_training_killed_at_any_step_and_resumed_equals_one_that_was_not(runner, mode):
    killed_at = random.Random(os.getpid()).randint(7, 16)
    with runner.start(sys.executable, PROGRAM, "train", mode, "ckpt", STEPS, **runner.quiet) as process:
        for line in process.stdout:
            if line == f"STEP {killed_at}\n":
                process.send_signal(signal.SIGKILL)
                break
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    done = runner.program("resumable.py", "compare", mode, "ckpt", STEPS)
    assert done.code == 0, done.err
    resumed, undisturbed = done.result["resumed"], done.result["undisturbed"]
    first = STEPS - len(resumed["losses"])
    assert first in range(max(4, killed_at // 4 * 4 - 4), STEPS, 4), (killed_at, done.result["from"])
    assert len(undisturbed["losses"]) == STEPS
    assert resumed["losses"] == undisturbed["losses"][first:]
    assert resumed["digest"] == undisturbed["digest"]
    whole = strict(undisturbed["history"])
    assert len(whole) == 6
    assert strict(resumed["history"]) == {name: points[first:] for name, points in whole.items()}
    assert resumed["problems"] == resumed["others"] == undisturbed["problems"] == []
