"""Two ranks that train together: a fault on one of them keeps the update away from both."""

import json
import time

import pytest

KEYWORD = "accuracy sensitivity feature abnormal"


def train_together(runner, mode, action, timeout=120):
    """The exit code of msrun, what both ranks printed per step, and the logs of the ranks."""
    done, logs = runner.ranks("data_parallel.py", mode, action, timeout=timeout)
    steps = [
        [json.loads(line.partition("STEP ")[2]) for line in log.splitlines() if line.startswith("STEP ")]
        for log in logs
    ]
    return done, steps, logs


@pytest.mark.parametrize("mode", ["graph", pytest.param("pynative", marks=pytest.mark.slow)])
def test_both_ranks_refuse_the_step_and_stay_alike_while_only_one_has_the_anomaly(runner, mode):
    done, (first, second), _ = train_together(runner, mode, "skip")
    assert done.code == 0, done
    assert [step["step"] for step in first] == [step["step"] for step in second] == [1, 2, 3, 4, 5]
    for steps in (first, second):
        assert [step["refused"] for step in steps] == [False, False, True, False, False]
    assert [step["digest"] for step in first] == [step["digest"] for step in second]
    assert [step["kinds"] for step in first] == [[], [], ["follower"], [], []]
    assert [step["kinds"] for step in second] == [[], [], ["anomaly"], [], []]
    follower, anomaly = (runner.events(f"asd_run/events-rank{rank}.jsonl") for rank in (0, 1))
    assert [(event["rank"], event["level"], event["step"], event["refused"]) for event in follower + anomaly] == [
        (0, "normal", 3, True),
        (1, "first", 3, True),
    ]
    assert anomaly[0]["checkpoint"].startswith("norm")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_with_stop_both_ranks_end_at_that_step_and_none_hangs(runner, mode):
    began = time.monotonic()
    done, (first, second), logs = train_together(runner, mode, "stop")
    assert time.monotonic() - began < 90
    assert done.code != 0
    for steps in (first, second):
        assert [step["refused"] for step in steps] == [False, False, True]
        assert steps[-1]["stopped"]
    assert first[-1]["digest"] == second[-1]["digest"]
    assert (first[-1]["kinds"], second[-1]["kinds"]) == (["follower"], ["anomaly"])
    assert "asd.errors.AnomalyDetected: in the wake of another anomaly" in logs[0]
    assert f"asd.errors.AnomalyDetected: {KEYWORD}" in logs[1]
