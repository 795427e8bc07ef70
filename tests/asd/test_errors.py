"""The errors: what they say, with their data as attributes."""

import pickle

import pytest

from asd.errors import AnomalyDetected, ASDError, ConfigError, IsolationError, StateError, UnsupportedError
from asd.event import Event
from asd.isolator import Device
from asd.verdict import Level
from tests.support.events import made_of

EVENT = made_of(
    Event,
    run="r",
    rank=0,
    host="h",
    device="CPU:0",
    step=1,
    checkpoint="a",
    value=float("inf"),
    limits=(),
    kind="anomaly",
    level=Level.ERROR,
    rule="threshold",
    feature="l2",
    reason="not finite",
    refused=True,
    time=0.0,
)


def test_a_name_that_is_no_line_of_text_is_quoted_so_that_the_sentence_stays_one_line():
    assert str(ConfigError("a\n", 1, "2")) == "'a\\n' has the value 1, which is not valid: 2."


def test_a_config_error_says_which_value_of_what_and_what_is_valid():
    error = ConfigError("ASD_RULE", "none", "it must be one of a, b")
    assert str(error) == "ASD_RULE has the value 'none', which is not valid: it must be one of a, b."
    assert (error.variable, error.value, error.valid) == ("ASD_RULE", "none", "it must be one of a, b")


def test_an_isolation_error_says_which_engine_failed_for_which_device_and_why():
    device = Device("node7", "Ascend:3", 5)
    error = IsolationError(device, "slurm", "scontrol took more than 10 s")
    assert issubclass(IsolationError, ASDError)
    assert issubclass(IsolationError, RuntimeError)
    assert str(error) == "slurm failed for Ascend:3 on node7: scontrol took more than 10 s."
    assert (error.device, error.engine, error.reason, error.retry) == (
        device,
        "slurm",
        "scontrol took more than 10 s",
        True,
    )
    assert IsolationError(device, "slurm", "no such node", retry=False).retry is False


def test_an_anomaly_carries_its_event_and_reads_like_the_log_line():
    assert AnomalyDetected(EVENT).event is EVENT
    assert str(AnomalyDetected(EVENT)) == EVENT.sentence()


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("a", (1, 2), "c"),
        StateError("s"),
        UnsupportedError("u"),
        AnomalyDetected(EVENT),
        IsolationError(Device("h", "d", 0), "e", "r", retry=False),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_the_way_back_from_a_worker_process(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
