"""The log: one line per event, found by the keyword of the feature-value detection document."""

import logging
import re
import subprocess
import sys
from dataclasses import asdict

import pytest

from asd import Config, Level
from asd.exporters.run_files.log import LogSink
from asd.judge.monitor import Monitor
from asd.origin import Origin
from asd.rules.reading import Reading
from tests.support.events import event_maker

ORIGIN = Origin("run1", 3, "node7", "CPU:0")
KEYWORD = "accuracy sensitivity feature abnormal"


@pytest.fixture
def logger():
    """A logger of its own, whose records are kept in `logger.lines`."""
    logger = logging.Logger("test")
    logger.lines = []
    handler = logging.Handler()
    handler.emit = lambda record: logger.lines.append((record.levelname, record.getMessage()))
    logger.addHandler(handler)
    return logger


event = event_maker(**asdict(ORIGIN), reason="100% wrong", time=0.0)


def test_a_first_level_anomaly_is_an_error_with_the_keyword_the_code_and_the_health_text(logger):
    LogSink(logger)(event())
    ((level, line),) = logger.lines
    assert level == "ERROR"
    assert line.startswith(
        f"{KEYWORD}: node type=SoC, sensor type=Check Sensor, event state=check fail, code=80818C00 level=first "
        "device=CPU:0 rank=3 host=node7 step=1 checkpoint=a value=2e+06 limit=1e+06 "
    )
    assert line.endswith('reason="100% wrong"')  # and no formatting of what the line holds


@pytest.mark.parametrize("kind", ["problem", "follower"])
def test_what_is_no_anomaly_is_an_error_without_the_keyword(logger, kind):
    LogSink(logger)(event(kind=kind, level=Level.NORMAL))
    ((level, line),) = logger.lines
    assert level == "ERROR"
    assert KEYWORD not in line


def test_one_fault_is_one_line_that_names_the_other_places_and_the_event_log_has_all(logger):
    events = []
    watch = Monitor(Config(protection="document", enable=1), ORIGIN, [LogSink(logger), events.append])
    watch.judge(1, [Reading(name, 2e4 if name == "a" else 2e6, order) for order, name in enumerate("abcdefg")])
    ((level, line),) = logger.lines
    assert (level, len(events)) == ("ERROR", 7)
    assert line.endswith('1000000; also a, c, d and 3 more"')
    assert "checkpoint=b " in line


def test_a_state_that_breaks_its_bound_in_the_same_step_has_a_line_of_its_own(logger):
    sink = LogSink(logger)
    for more in ({}, {"checkpoint": "b"}, {"key": "state"}):
        sink(event(**more))
    assert len(logger.lines) == 2


@pytest.mark.parametrize(("large", "more"), [(3e5, ["7000"]), (9e5, ["7000"]), (1e5, [])])
def test_of_second_level_anomalies_three_are_told_and_one_that_is_ten_times_worse(large, more, logger):
    watch = Monitor(Config(protection="document", enable=1), ORIGIN, [LogSink(logger)])
    for step in range(1, 10_001):
        size = large if step in (7000, 8000) else 2e4 if step % 40 == 0 else 9e3
        watch.judge(step, [Reading(name, size) for name in "abc"])
    assert watch.status.anomalies == {"first": 0, "second": 750}
    assert [re.search(r" step=(\d+) ", line)[1] for _, line in logger.lines] == ["40", "400", "4000", *more]


def test_with_level_3_normal_values_are_logged_and_an_abnormal_one_only_once(logger):
    sink = LogSink(logger)
    watch = Monitor(Config(protection="document", enable=3), ORIGIN, [sink], value_sink=sink.values)
    watch.judge(1, [Reading("a", 1.5), Reading("b", 2e6)])
    assert logger.lines[0] == ("INFO", "step=1 checkpoint=a value=1.5 limit=1e+06")
    assert [level for level, _ in logger.lines] == ["INFO", "ERROR"]


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)


EVENT = """
from asd import Event, Level
from asd.origin import Origin
event = Event(origin=Origin("r", 0, "h", "CPU:0"), step=1, checkpoint="a", value=2e6, limits=(),
              level=Level.ERROR, kind="anomaly", rule="r", feature="l2", reason="特征值", refused=False, time=0.0)
"""


def test_without_any_handler_lines_go_to_standard_error_as_ascend_writes_them():
    done = run(f"{EVENT}\nfrom asd.exporters.run_files.log import LogSink\nLogSink()\nLogSink()(event)")
    assert done.stdout == ""
    assert re.fullmatch(
        rf"\[ERROR\] ASD\(\d+\):\d{{4}}-\d\d-\d\d-\d\d:\d\d:\d\d\.\d{{3}} {KEYWORD}: .* reason=.*\n", done.stderr
    )


def test_the_handlers_of_the_training_are_used_and_none_is_added():
    code = "import logging\nlogging.basicConfig(format='MINE %(message)s')\n"
    code += "from asd.exporters.run_files.log import LogSink\n"
    done = run(f"{EVENT}{code}LogSink()(event)")
    assert done.stderr.startswith(f"MINE {KEYWORD}: ")
    assert done.stderr.count("\n") == 1
