"""Pictures can be drawn of everything a training may leave behind, and are SVG that needs nothing else."""

import math
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from asd import Level
from asd.demo.pictures import Lane, draw_history, draw_jobs
from asd.exporters.pictures.chart import Scale
from asd.supervisor.record import Attempt
from tests.support.events import event_maker

HEALTHY = {
    "model.norm_out": [(step, 0.5 + 0.01 * step, 1e6, Level.NORMAL) for step in range(1, 31)],
    "model.layers.0": [(step, 0.1, math.inf, Level.NORMAL) for step in range(1, 31)],
}
LOSSES = {"without detection": [6.0 - 0.1 * step for step in range(30)], "with detection": [5.0] * 30}
SVG = "{http://www.w3.org/2000/svg}"


def picture(path, history=HEALTHY, losses=LOSSES, title="Feature values"):
    """The elements of the file, each with its class and its text."""
    draw_history(path, history, losses=losses, title=title)
    return elements(path)


def elements(path):
    content = path.read_text(encoding="utf-8")
    assert "var(" not in content
    root = ElementTree.fromstring(content)
    numbers = [value for each in root.iter() for name, value in each.items() if name not in ("class", "d")]
    assert not any(word in value.split() for value in numbers for word in ("nan", "inf", "-inf"))
    assert root.tag == f"{SVG}svg"
    return [(each.get("class", ""), each.text or "", each) for each in root.iter()]


def texts(found):
    return [text for _, text, each in found if each.tag == f"{SVG}text"]


def marks(found):
    return [kind for kind, _, _ in found if kind.startswith("mark")]


def test_a_healthy_run_is_drawn_with_its_losses_and_a_chart_for_each_checkpoint(tmp_path):
    found = picture(tmp_path / "p.svg")
    assert {"Feature values", *HEALTHY, *LOSSES, "loss", "step"} <= set(texts(found))
    assert [kind for kind, _, _ in found if kind in ("value", "limit", "curve0", "curve1")].count("value") == 2
    assert marks(found) == []


def test_a_first_level_value_is_marked_also_among_the_losses(tmp_path):
    history = {"a": [(1, 1.0, 1e6, Level.NORMAL), (2, 5e8, 1e6, Level.ERROR), (3, 20.0, 1e6, Level.WARNING)]}
    found = picture(tmp_path / "p.svg", history)
    assert marks(found) == ["mark second", "mark first"]
    assert [kind for kind, _, _ in found].count("alarm") == 1


VALUES = st.floats(min_value=0) | st.sampled_from([math.nan, math.inf, 0.0])
HISTORIES = st.dictionaries(
    st.sampled_from(["a", "b"]),
    st.lists(st.tuples(st.integers(1, 10**18), VALUES, VALUES, st.sampled_from(Level)), max_size=8),
)


@settings(deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=HISTORIES, losses=st.lists(st.floats(), max_size=4))
def test_any_history_can_be_drawn(tmp_path, history, losses):
    picture(tmp_path / "p.svg", history, {"loss": losses})


@pytest.mark.parametrize(
    ("scale", "whole", "shown"),
    [
        (Scale(1, 30, 0, 1), True, ["10", "20", "30"]),
        (Scale(1, 2, 0, 1), True, ["1", "2"]),
        (Scale(0, 40_000, 0, 1), False, ["0", "10,000", "20,000", "30,000", "40,000"]),
        (Scale(2.91, 3.04, 0, 1), False, ["2.95", "3"]),
        (Scale(0.1, 1e9, 0, 1, log=True), False, ["0.1", "10", "1000", "1e5", "1e7", "1e9"]),
    ],
)
def test_the_numbers_beside_an_axis_are_round(scale, whole, shown):
    ticks = scale.ticks(whole=whole)
    assert [words for _, words in ticks] == shown
    assert all(0 <= scale(value) <= 1 for value, _ in ticks)


def test_a_job_is_drawn_with_its_attempts_its_alarm_and_the_device_that_is_taken_out(tmp_path):
    made = event_maker(host="h", device="CPU:1", rank=1)
    events = [
        made(20, time=1010.0),
        made(20, kind="replay", level=Level.NORMAL, verdict="persistent", time=1011.0),
        made(0, kind="isolation", level=Level.NORMAL, time=1012.0),
        made(0, kind="isolation", level=Level.NORMAL, time=1012.0, device="unknown"),
    ]
    attempts = [Attempt("a", [0, 1], began=999.0, ended=1012.0), Attempt("b", [0, 2], began=1013.0, ended=0.0)]
    losses = [(1000.0 + step, step, 6.0 - step / 10) for step in range(1, 30)]
    clean = Lane("No fault", losses, [Attempt("c", [0, 1], began=999.0, ended=1030.0)], [])
    draw_jobs(tmp_path / "job.svg", {"clean": clean, "bad": Lane("A device fails", losses, attempts, events)})
    found = elements(tmp_path / "job.svg")
    assert {"No fault", "A device fails", "attempt 2", "persistent", "isolated", "device 2"} <= set(texts(found))
    assert marks(found) == ["mark first"]
    assert texts(found).count("rank 1") == 3
