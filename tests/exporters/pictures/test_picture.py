"""The picture of the feature values: it can be drawn of everything a training may leave behind."""

import math
import struct

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from asd import Level
from tests.support.events import event_maker

HEALTHY = {
    "model.norm_out": [(step, 0.5 + 0.01 * step, 1e6, Level.NORMAL) for step in range(1, 31)],
    "model.layers.0": [(step, 0.1, math.inf, Level.NORMAL) for step in range(1, 31)],
}
LOSSES = {"without detection": [6.0 - 0.1 * step for step in range(30)], "with detection": [5.0] * 30}


@pytest.fixture(scope="session")
def draw():
    pytest.importorskip("matplotlib")
    from asd.exporters.pictures.values import draw_history

    return draw_history


made = event_maker(run="r", host="h", device="CPU:0", checkpoint="model.norm_out", time=0.0)


def event(step=20, **changes):
    return made(step, **changes)


def picture(draw, path, history=HEALTHY, events=(), losses=LOSSES, title="Feature values"):
    """The content of the file, which is a PNG of the size of the figure."""
    draw(path, history, events, losses=losses, title=title)
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", content[16:24]) == (1100, 825)
    assert content[-8:-4] == b"IEND"
    assert len(content) > 10_000
    return content


def test_a_healthy_run_is_drawn(draw, tmp_path):
    picture(draw, tmp_path / "p.png")


def test_the_same_run_gives_the_same_picture_and_a_value_changes_it(draw, tmp_path):
    first, again = (picture(draw, tmp_path / "p.png") for _ in range(2))
    assert first == again
    changed = {**HEALTHY, "model.layers.0": [(step, 0.2, math.inf, Level.NORMAL) for step in range(1, 31)]}
    assert picture(draw, tmp_path / "p.png", changed) != first


def test_a_first_level_event_is_marked_and_others_are_not(draw, tmp_path):
    plain = picture(draw, tmp_path / "p.png")
    assert picture(draw, tmp_path / "p.png", events=[event()]) != plain
    others = [event(level=Level.WARNING), event(level=Level.NORMAL, kind="problem", value=math.nan, limits=())]
    assert picture(draw, tmp_path / "p.png", events=others) == plain


@pytest.mark.parametrize("value", [math.inf, math.nan, 0.0, 1e300, 5e-324])
def test_a_value_that_no_logarithmic_axis_can_show_is_drawn(draw, tmp_path, value):
    history = {"a": [(1, 1.0, 1e6, Level.NORMAL), (2, value, 1e6, Level.ERROR), (3, 1.0, 1e6, Level.NORMAL)]}
    picture(draw, tmp_path / "p.png", history, [event(step=2, value=value)], losses={"loss": [1.0, math.nan, 1.0]})


def test_a_resumed_run_is_drawn_as_two_lines_and_not_as_one_that_goes_back(draw):
    from asd.exporters.pictures.values import _parts

    points = [(step, 1.0, 1e6, Level.NORMAL) for step in (1, 2, 3, 4, 3, 4, 5)]
    assert [[step for step, *_ in part] for part in _parts(points)] == [[1, 2, 3, 4], [3, 4, 5]]


def test_a_resumed_run_with_missing_losses_is_drawn(draw, tmp_path):
    history = {"a": [(step, 1.0, 1e6, Level.NORMAL) for step in (1, 2, 3, 4, 3, 4, 5)]}
    losses = {"all": [3.0] * 5, "with the fault": [3.0] * 4, "resumed": [math.nan, math.nan, 3.0, 2.0, 1.0]}
    picture(draw, tmp_path / "p.png", history, [event(step=4, limits=())], losses)


@pytest.mark.parametrize(("history", "losses"), [({}, {}), ({"a": []}, {"loss": []}), ({}, LOSSES), (HEALTHY, {})])
def test_a_run_that_has_nothing_to_show_is_drawn_without_a_warning(draw, tmp_path, history, losses):
    picture(draw, tmp_path / "p.png", history, losses=losses)


def test_names_and_titles_are_drawn_as_they_are_written(draw, tmp_path):
    title = "a $title$ with \\dollars_{ and ^braces"
    history = {"model.$x$": HEALTHY["model.norm_out"]}
    picture(draw, tmp_path / "p.png", history, [event(checkpoint="$\\frac{$")], {"$loss$": [1.0]}, title)


VALUES = st.floats(min_value=0) | st.sampled_from([math.nan, math.inf, 0.0])
HISTORIES = st.dictionaries(
    st.sampled_from(["a", "b"]),
    st.lists(st.tuples(st.integers(1, 10**6), VALUES, VALUES, st.sampled_from(Level)), max_size=8),
)


@pytest.mark.slow
@settings(
    max_examples=20, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(history=HISTORIES, value=VALUES, limits=st.lists(VALUES, max_size=1).map(tuple))
def test_any_history_can_be_drawn(draw, tmp_path, history, value, limits):
    picture(draw, tmp_path / "p.png", history, [event(value=value, limits=limits)])


@pytest.mark.parametrize("top", [0.3, 6e32])
def test_the_axis_shows_numbers_and_no_formulas(draw, tmp_path, monkeypatch, top):
    from matplotlib.figure import Figure

    figures = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *args, **kwargs: (figures.append(self), save(self, *args, **kwargs))
    )
    values = [(1, 0.2, math.inf, Level.NORMAL), (2, top, math.inf, Level.NORMAL)]
    draw(tmp_path / "p.png", {"site": values}, [], losses=LOSSES, title="t")
    axis = figures[0].axes[1].yaxis
    labels = [tick.label1.get_text() for tick in axis.get_major_ticks() + axis.get_minor_ticks()]
    assert any(labels)
    assert not any("$" in label for label in labels)
