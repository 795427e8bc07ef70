"""`asd run` around trainings that know nothing of detection, in every style and both modes."""

import contextlib
import json
import signal
import sys
from functools import cache

import pytest

from asd.exporters.prometheus.agent import Agent
from asd.exporters.prometheus.node import NodeCollector
from tests.e2e.conftest import Runner

KEYWORD = "accuracy sensitivity feature abnormal"
STYLES = ("model", "cell", "functional", "wrapped")


def judged_styles(*fast):
    """Every style in both modes; those that are not in `fast` are for `make test-slow`."""
    cells = [(style, mode) for style in STYLES for mode in ("graph", "pynative")]
    marked = [pytest.param(*cell, marks=() if cell in fast else pytest.mark.slow) for cell in cells]
    return pytest.mark.parametrize(("style", "mode"), marked)


@judged_styles(("wrapped", "graph"))
def test_a_bad_update_is_refused_and_the_training_ended(runner, style, mode):
    done = runner.asd_run("loops.py", style, mode, 6, 4)
    assert done.code == 1
    assert done.out == ""
    assert f"asd.errors.AnomalyDetected: {KEYWORD}: " in done.err
    assert "code=80818C00" in done.err
    (event,) = anomalies(runner)
    assert (event["step"], event["level"], event["refused"] or event["healed"]) == (4, "first", True)
    assert event["value"] == pytest.approx(1.0318e12, rel=1e-4)


def anomalies(runner):
    return [event for event in runner.events() if event["kind"] == "anomaly"]


@judged_styles(("functional", "pynative"))
def test_with_skip_the_weights_stay_and_the_training_goes_on(runner, style, mode):
    bad = 1 if style == "functional" else 4  # in a loop around an optimizer the first step is judged too
    done = runner.asd_run("loops.py", style, mode, bad, bad, ASD_ON_ANOMALY="skip")
    assert (done.code, len(done.result["losses"])) == (0, bad)
    assert done.result["before"] == done.result["after"]
    assert [event["step"] for event in anomalies(runner)] == [bad]


BOTH = pytest.mark.parametrize("mode", ["pynative", pytest.param("graph", marks=pytest.mark.slow)])


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """What a training without detection came to, by mode; of a training cell, which `Model` uses too."""

    @cache
    def of(mode):
        done = Runner(tmp_path_factory.mktemp("bare")).program("loops.py", "cell", mode, 6)
        assert (done.code, done.err) == (0, "")
        return done.result

    return of


@BOTH
def test_a_healthy_training_has_the_same_losses_with_and_without_detection(runner, mode, bare):
    done = runner.asd_run("loops.py", "cell", mode, 6)
    assert (done.code, done.result) == (0, bare(mode))
    lines = done.err.splitlines()
    assert ["norm.layer_norm" in lines[0], "rule: threshold" in lines[1], len(lines)] == [True, True, 2]
    left = {path.name for path in (runner.folder / "asd_run").iterdir()}
    assert left == {"status-rank0.json", ".status-rank0.json.lock"}  # what it counted; no event


@BOTH
def test_one_switch_turns_on_what_changes_no_number_and_says_so(runner, mode, bare):
    done = runner.asd_run("loops.py", "model", mode, 6, ASD_PROTECTION="full")
    assert (done.code, done.result) == (0, bare(mode))
    products = "matrix products" if mode == "pynative" else "not active: ASD_OPTIONS=detectors:checksum"
    for what in ("rule: adaptive", products, "bounds on each", "second look: of 1 %", "replay: of refused steps"):
        assert what in done.err, what
    assert anomalies(runner) == []


@pytest.mark.parametrize(
    ("style", "mode"),
    [
        ("assigned", "pynative"),
        *(
            pytest.param(*cell, marks=pytest.mark.slow)
            for cell in (("killed", "graph"), ("assigned", "graph"), ("jitted", "pynative"), ("own_cell", "graph"))
        ),
    ],
)
def test_what_trains_and_is_not_judged_is_told_within_ten_steps(runner, style, mode):
    done, killed = runner.program("loops.py", style, mode, 10, NPU_ASD_ENABLE="1"), style == "killed"
    assert done.code == (-signal.SIGKILL if killed else 0)
    (event,) = runner.events()
    assert (event["kind"], event["step"]) == ("problem", 0)
    (line,) = [line for line in done.err.splitlines() if line.startswith("[ERROR] ASD")]
    assert event["reason"] in line
    status = json.loads((runner.folder / "asd_run/status-rank0.json").read_text())
    assert (status["steps"], status["problems"], status["active"], status["unjudged"]) == (0, 1, killed, True)
    assert list(status["protections"]["missing"]) == ["NPU_ASD_ENABLE"]
    with contextlib.closing(Agent([runner.folder / "asd_run"])) as agent:
        agent.poll()
        families = {family.name: family.samples for family in NodeCollector(agent).collect()}
    assert [families[name][0].value for name in ("asd_training_unjudged", "asd_rank_lost")] == [1, killed]


@pytest.mark.parametrize("start", ["program", pytest.param("asd_run", marks=pytest.mark.slow)])
def test_the_environment_variable_is_enough_and_asd_run_does_nothing_twice(runner, start):
    done = getattr(runner, start)("loops.py", "functional", "pynative", 6, 4, NPU_ASD_ENABLE="1")
    assert done.code == 1
    assert [event["step"] for event in anomalies(runner)] == [4]
    assert done.err.count("rule: threshold") == 1


def test_a_wrong_value_of_the_variable_ends_the_program_before_mindspore_begins(runner):
    done = runner.run(sys.executable, "-c", "import mindspore", NPU_ASD_ENABLE="on", **runner.quiet)
    assert (done.code, done.err.splitlines()[-1].split()[:2]) == (1, ["asd.errors.ConfigError:", "NPU_ASD_ENABLE"])
