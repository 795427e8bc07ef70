"""What one event does to the strikes of the store: which rows are kept, wait or are revoked."""

from dataclasses import replace

import pytest

from asd.diagnosis.weights import Difference
from asd.judge.reports import Reports
from asd.origin import Origin
from tests.asd.handler.scene import START, Scene, event


@pytest.fixture
def scene():
    return Scene(from_beginning=True)


def tell(scene, step, device="Ascend:1", at=0.0, **changes):
    """An event about a device, so many seconds after the start."""
    return scene.handler.handle(event(step, device=device, time=START + at, **changes))


def revoked(scene):
    return [row[0] for row in scene.rows("SELECT revoked FROM strike ORDER BY n")]


def test_of_a_device_twenty_strikes_more_than_needed_are_kept(scene):
    for step in range(1, 151):
        tell(scene, step, at=step - 150)
        scene.after(31.0)
    assert [row[0] for row in scene.rows("SELECT step FROM strike ORDER BY n")] == list(range(118, 151))


def test_a_backlog_of_bad_data_isolates_no_device(scene):
    for first in (1, 101):  # logs are read in turns, while it ticks
        for device in range(4):
            for step in range(first, first + 100):
                tell(scene, step, f"Ascend:{device}", at=60.0 * step - 20_000.0)
            assert scene.after(1.0) == []
    assert scene.after(31.0) == []


def test_software_in_a_step_that_is_not_known_revokes_only_itself(scene):
    tell(scene, 0)
    tell(scene, 0, "Ascend:2", kind="replay", verdict="software")
    assert revoked(scene) == ["", "software"]
    assert scene.rows("SELECT count(*) FROM software") == [(0,)]


def test_failed_stress_tests_make_no_burst_of_anomalies(scene):
    tell(scene, 1)
    tell(scene, 2, "Ascend:2")
    tell(scene, 0, "Ascend:3", kind="stress", key="a", checkpoint="")
    assert revoked(scene) == [""] * 3
    assert tell(scene, 3, "Ascend:4", at=1).action == "software"


def test_a_burst_takes_in_no_strike_that_is_later_than_its_time(scene):
    scene.clock.now += 200
    for step, at in enumerate((0.0, 200.0, 1.0, 2.0), 1):
        tell(scene, step, f"Ascend:{step}", at=at)
    assert revoked(scene) == ["burst", "", "burst", "burst"]


@pytest.mark.parametrize(
    ("before", "after", "mark"), [(-20.0, 20.0, ""), (-20.0, 10.0, "burst"), (-20.0, 10.5, ""), (-15.0, 5.0, "burst")]
)
def test_a_burst_may_begin_before_and_end_after_the_event_that_shows_it(scene, before, after, mark):
    scene.clock.now += 100
    tell(scene, 4, "Ascend:4", at=70.0)
    tell(scene, 1, "Ascend:1", at=before)
    tell(scene, 2, "Ascend:2", at=after)
    tell(scene, 3, "Ascend:3")
    assert revoked(scene) == ["", mark, mark, mark]


def test_software_that_no_device_is_named_for_revokes_the_strikes_of_its_step(scene):
    tell(scene, 4)
    tell(scene, 4, "Ascend:2")
    tell(scene, 4, "", kind="replay", verdict="software")
    assert revoked(scene) == ["software", "software"]


def test_as_many_weights_that_differ_in_the_same_step_of_another_attempt_are_no_sign_of_software(scene):
    origin = Origin("llama", 1, "node7", "Ascend:1")
    for attempt in (1, 2, 3):
        reports = Reports(replace(origin, run=f"llama+{attempt}"), "adaptive", "", lambda: START)
        decision = scene.handler.handle(reports.weights_differ(50, Difference((1,), ("w", "b"), "rank 1")))
    assert (decision.action, revoked(scene)) == ("waiting", ["", "", ""])


def test_a_device_is_suspect_until_what_it_did_is_known_to_be_over_or_is_forgiven(scene):
    suspects = lambda: [name for _, name in scene.handler.triage.strikes.suspects(scene.clock.now)]  # noqa: E731
    tell(scene, 1, "Ascend:2", at=-2.0)
    tell(scene, 1, "Ascend:1", at=-1.0)
    assert suspects() == ["Ascend:2", "Ascend:1"]
    tell(scene, 1, "Ascend:1", kind="replay", verdict="transient")
    assert suspects() == ["Ascend:2"]
    scene.reset_breaker()
    assert suspects() == []
    scene.clock.now += 200
    for step, found in ((9, []), (99, ["Ascend:1"])):
        tell(scene, step, at=step + 1)
        tell(scene, step, at=step + 1, kind="replay", verdict="undetermined")
        assert suspects() == found  # one incident may be the data
