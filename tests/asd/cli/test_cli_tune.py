"""The command `asd tune`."""

import random

import pytest

from asd.cli import main
from asd.config import Config
from asd.exporters.run_files.values import ValueRecorder
from asd.judge.monitor import Monitor
from asd.origin import Origin
from asd.rules.reading import Reading


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    folder, draw = tmp_path_factory.mktemp("run"), random.Random(7)
    config, origin = Config(protection="document", enable=1, run_dir=str(folder)), Origin("job", 0, "host", "Ascend:0")
    monitor = Monitor(config, origin, [ValueRecorder(config, origin)])
    monitor.begin()
    for step in range(1, 301):
        sizes = [2 ** draw.gauss(5 + i, 1) for i in range(4)]
        monitor.judge(step, [Reading(f"layer{i}", 2 * size) for i, size in enumerate(sizes)])
    monitor.end()
    return folder


def test_it_prints_lines_that_a_shell_takes_and_that_the_settings_accept(run_dir, capsys):
    assert main(["tune", str(run_dir), "--budget", "1e-3", "--warnings", "5e-3"]) == 0
    printed = capsys.readouterr().out
    exports = dict(line[7:].split("=") for line in printed.splitlines() if line.startswith("export"))
    assert set(exports) == {"NPU_ASD_UPPER_THRESH", "NPU_ASD_SIGMA_THRESH"}
    assert Config.from_env(exports).upper[0] < 1_000_000
    assert "1,200 values of 4 checkpoints" in printed
    assert "-level;  without thresholds " in printed
    assert "layer3, rank 0, step" in printed
