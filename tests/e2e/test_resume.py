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


@pytest.mark.parametrize("mode", ["graph", pytest.param("pynative", marks=pytest.mark.slow)])
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


def test_a_state_that_can_not_be_used_is_one_sentence_and_the_training_goes_on(runner):
    done = runner.program("resumable.py", "damaged", "graph", "ckpt", 8)
    assert done.code == 0, done.err
    result = done.result
    whole = result.pop("whole")
    assert whole["problems"] == []
    assert set(result) == {"another model", "another rule", "cut off", "deleted"}
    for kind, sentence in {
        "another model": "the saved state is of another network: it has bert.layers.0.attention_norm, bert.layers.0."
        "ffn_norm, bert.layers.1.attention_norm and 3 more, this network has model.layers.0.",
        "another rule": "the saved state is of rule 'combined'; this run uses 'silent_check_v3'.",
        "cut off": " is corrupt: ",
        "deleted": " can't be read: No such file or directory.",
    }.items():
        (problem,) = result[kind]["problems"]
        assert sentence in problem, kind
        assert problem.endswith(" The rules start anew."), kind
        assert "\n" not in problem
        assert result[kind]["losses"] == whole["losses"][4:], kind
        assert result[kind]["digest"] == whole["digest"], kind
