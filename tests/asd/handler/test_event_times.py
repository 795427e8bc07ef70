"""Clocks that are apart, old events, and a clock that jumps."""

from asd.handler import Policy
from asd.isolator import Device
from tests.asd.handler.scene import HOUR, START, Scene, event

# Clocks that are hours apart


def test_strikes_of_one_device_are_counted_by_the_clock_of_its_host():
    scene = Scene(Policy(many_devices=9))
    scene.clock.now += 12 * HOUR  # since the handler began
    for step in (1, 2, 3):  # three strikes within six hours, whatever the clock says
        for hours, device in ((-5.0, "Ascend:0"), (0.0, "Ascend:1"), (5.0, "Ascend:2")):
            shown = scene.clock.now + hours * HOUR
            at_fault = event(step, device=device, host=f"node{device[-1]}", time=shown)
            assert scene.handler.handle(at_fault).action == ("waiting" if step == 3 else "strike")
        scene.after(31.0)
        scene.clock.now += 3 * HOUR - 31.0
    assert scene.isolated == ["Ascend:0", "Ascend:1"]  # and then the circuit breaker opened
    assert scene.handler.store.number("breaker_opened")


# Old events


def test_events_from_before_the_first_start_are_recorded_and_cause_nothing():
    scene = Scene(Policy(strikes=1))
    for step in range(3):
        assert scene.handler.handle(event(step + 1, time=START - 61.0)).action == "stale"
    assert scene.replay("persistent", 4, time=START - 61.0).action == "stale"
    assert scene.after(HOUR) == []
    assert scene.rows("SELECT count(*) FROM strike")[0] == (4,)
    assert Scene().replay("persistent", 4, time=START - 59.0).action == "isolated"  # a clock that is behind


def test_after_a_restart_new_news_of_old_events_still_act_but_not_of_very_old_ones(tmp_path):
    scene = Scene(path=tmp_path / "h.sqlite")
    scene.clock.now += 24 * HOUR
    scene.restart()
    assert scene.replay("persistent", 4, device="Ascend:1", time=scene.clock.now - 9 * HOUR).action == "stale"
    assert scene.replay("persistent", 4, device="Ascend:2", time=scene.clock.now - 7 * HOUR).action == "isolated"


def test_a_clock_that_goes_back_blocks_nothing(tmp_path):
    scene = Scene(path=tmp_path / "h.sqlite")
    for step in (1, 2, 3):
        scene.raises(step)
    scene.clock.now -= 5 * HOUR
    assert scene.after(0.0) == []
    assert scene.after(31.0) == ["isolated"]
    assert scene.replay("persistent", 9, device="Ascend:4").action == "isolated"
    scene.passes("Ascend:3", "Ascend:4")
    assert scene.after(48 * HOUR) == ["released", "released"]


def test_a_strike_from_the_far_future_leaves_the_window_all_the_same():
    scene = Scene()
    scene.handler.handle(event(1, time=START + 1000 * HOUR))
    assert scene.record().strikes == 1
    scene.clock.now = START + 8 * HOUR + 61.0
    assert scene.record().strikes == 0


def test_a_verdict_from_beyond_the_last_year_is_of_now():
    scene = Scene()
    scene.raises(1)
    assert scene.replay("persistent", 1, time=253402300800.0).action == "isolated"
    assert scene.published[0].time <= scene.clock.now


# The clock


class Uptime:
    """The seconds since the machine started, which go on as they do whatever the clock is set to."""

    def __init__(self):
        self.boot, self.seconds = "first", 500.0

    def __call__(self):
        return self.boot, self.seconds

    def pass_by(self, scene, seconds):
        self.seconds += seconds
        return scene.after(seconds)


def test_a_clock_that_jumps_and_is_put_right_costs_a_device_nothing():
    uptime = Uptime()
    scene = Scene(uptime=uptime)
    scene.replay("persistent")
    scene.passes("Ascend:3")
    uptime.seconds += 1.0
    for jump in (72 * HOUR, -72 * HOUR):
        assert scene.after(jump) == []
        uptime.pass_by(scene, HOUR)
    assert uptime.pass_by(scene, 45.9 * HOUR) == []
    assert uptime.pass_by(scene, 0.2 * HOUR) == ["released"]


def test_time_with_the_machine_off_is_not_seen_and_time_with_the_handler_off_is(tmp_path):
    uptime = Uptime()
    scene = Scene(path=tmp_path / "h.sqlite", uptime=uptime)
    scene.replay("persistent")
    scene.passes("Ascend:3")
    uptime.seconds += 1.0
    uptime.seconds += 24 * HOUR
    scene.clock.now += 24 * HOUR
    scene.restart()
    assert scene.after(0.0) == []
    uptime.boot, uptime.seconds = "second", 10.0
    scene.clock.now += 100 * HOUR
    scene.restart()
    assert uptime.pass_by(scene, 23.9 * HOUR) == []
    assert uptime.pass_by(scene, 0.2 * HOUR) == ["released"]


def test_a_clock_that_jumps_ahead_closes_no_circuit_breaker():
    uptime = Uptime()
    scene = Scene(Policy(max_devices=1), uptime=uptime)
    scene.handler.know([Device("node7", "Ascend:1", 1)])
    assert [scene.replay("persistent", device=f"Ascend:{n}").action for n in (1, 2)] == ["isolated", "breaker"]
    assert scene.after(72 * HOUR) == []
    assert scene.replay("persistent", device="Ascend:3").action == "breaker"
    assert uptime.pass_by(scene, 24.1 * HOUR) == ["problem"]
