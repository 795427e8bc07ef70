"""Real ranks in data parallel: gradients are measured before their mean is taken, and nothing is changed."""

import json

import pytest


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_means_beside_checks_are_those_of_an_unchecked_training_bit_for_bit(runner, mode):
    done, logs = runner.ranks("reducing.py", mode)
    assert done.code == 0, done
    for log in logs:
        steps = [json.loads(line.partition("STEP ")[2]) for line in log.splitlines() if line.startswith("STEP ")]
        assert [(step["checked"], step["step"]) for step in steps] == [
            (on, i) for on in (False, True) for i in range(1, 7)
        ]
        bare, checked = steps[:6], steps[6:]
        assert [step["digest"] for step in checked] == [step["digest"] for step in bare]
        assert all(step["told"] == [] for step in checked)
        assert checked[-1]["digest"] != checked[0]["digest"]
