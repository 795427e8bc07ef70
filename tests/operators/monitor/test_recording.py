"""Recorded values of a real training: the same as were judged."""

import pytest
from test_step_monitor import NAMES, Run, config, dataset

from asd import AnomalyDetected, Config
from asd.exporters.run_files.values import ValueRecorder
from asd.origin import Origin
from asd.rundir.recording import Recording

pytestmark = pytest.mark.usefixtures("clean")
ORIGIN = Origin("job", 0, "host", "CPU:0")


def test_every_judged_value_is_recorded_and_the_refused_step_says_so(tmp_path):
    settings = config(run_dir=str(tmp_path), record=True)
    run = Run(settings, sinks=[ValueRecorder(settings, ORIGIN)])
    with pytest.raises(AnomalyDetected):
        run.train(dataset(5, bad=[4]))
    steps = list(Recording(tmp_path).steps())
    assert [(step.step, step.left_out) for step in steps] == [(1, ""), (2, ""), (3, ""), (4, "first")]
    for name in NAMES:
        judged = [value for _, value, _, _ in run.monitor.monitor.history[name]]
        recorded = [value for step in steps for of, _, value in step.values if of == name]
        assert recorded == pytest.approx(judged, rel=1e-7)
    assert isinstance(Recording(tmp_path).settings, Config)
