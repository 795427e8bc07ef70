"""The errors: what they say, with their data as attributes."""

import pickle

import pytest

from asd.errors import AnomalyDetected, ConfigError, IsolationError, StateError, UnsupportedError
from asd.isolator import Device
from tests.support.events import event_maker

EVENT = event_maker()()


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
