"""The way of a reading from tap to verdict and back to the next limit, with the settings that users have."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tables import quick

pytest.importorskip("mindspore")

WALK = Path(__file__).parents[2] / "benchmarks" / "walk.py"
HEALTHY, ABNORMAL = "a healthy step", "a step with a first-level anomaly"
# Per mode the most files and functions of a healthy step, and of one with an anomaly; they may only fall. In PyNative
# the check operators, their taps and the guard run as Python too; a compiled graph has them in it.
MOST = {"graph": {HEALTHY: (29, 150), ABNORMAL: (48, 312)}, "pynative": {HEALTHY: (43, 183), ABNORMAL: (61, 375)}}


@pytest.mark.parametrize("mode", quick(1, ["pynative", "graph"]))
def test_a_step_calls_few_functions_in_few_files(mode, tmp_path):
    file = tmp_path / "walk.json"
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("ASD_", "NPU_ASD_"))}
    command = [sys.executable, str(WALK), "--mode", mode, "--json", str(file)]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    walks = json.loads(file.read_text())
    for title, (files, functions) in MOST[mode].items():
        walk = walks[title]
        names = [name for _, name, _ in walk["calls"]]
        # From the slots, which a second look reads before the step is judged, to the verdict and the next limits.
        way = ["Table.read", "Monitor.judge", "Adaptive.update"]
        assert [name for name in names if name in way] == way
        assert {"StepMonitor.step", "Table.set_limits"} <= set(names)
        assert walk["files"] <= files, done.stdout
        assert walk["functions"] <= functions, done.stdout
        assert f"{mode}, {title}: {walk['files']} files, {walk['functions']} functions" in done.stdout
    assert "Ending.after" in [name for _, name, _ in walks[ABNORMAL]["calls"]]


def test_an_event_goes_through_few_functions_in_few_files_until_its_device_is_isolated():
    done = subprocess.run([sys.executable, str(WALK), "--mode", "handler"], capture_output=True, text=True, timeout=600)
    found = re.match(r"handler, from a log to an isolation: (\d+) files, (\d+) functions", done.stdout)
    assert (int(found[1]) <= 28, int(found[2]) <= 234) == (True, True), done.stdout + done.stderr
