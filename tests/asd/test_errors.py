"""The errors: what they say, with their data as attributes."""

import pickle

import pytest

from asd.errors import AnomalyDetected, ConfigError, IsolationError, StateError, UnsupportedError
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
