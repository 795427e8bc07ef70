"""Real ranks in data parallel: gradients are measured before their mean is taken, and nothing is changed."""

import json

import pytest


def train_together(runner, mode, checks):
    """What both ranks told of each step."""
    done, logs = runner.ranks("reducing.py", mode, checks)
    steps = [
        [json.loads(line.partition("STEP ")[2]) for line in log.splitlines() if line.startswith("STEP ")]
        for log in logs
    ]
    assert done.code == 0, done
    assert [len(rank) for rank in steps] == [6, 6], done
    return steps


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_means_beside_checks_are_those_of_an_unchecked_training_bit_for_bit(runner, mode):
    checked, bare = train_together(runner, mode, "never"), train_together(runner, mode, "bare")
    assert [[step["digest"] for step in rank] for rank in checked] == [
        [step["digest"] for step in rank] for rank in bare
    ]
    assert all(step["told"] == [] for rank in checked for step in rank)
    assert checked[0][-1]["digest"] != checked[0][0]["digest"]
