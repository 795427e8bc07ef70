"""The circuit breaker: how many devices a day may be taken out."""

from asd.handler import Policy
from asd.isolator import Device
from tests.asd.handler.scene import HOUR, Scene, breaker_scene, event


def test_the_breaker_stays_open_though_a_device_was_released():
    scene = breaker_scene(release_after_seconds=HOUR)
    scene.replay("persistent", 9, device="Ascend:7")
    scene.passes("Ascend:0", "Ascend:1")
    assert scene.after(HOUR) == ["released", "released"]
    assert scene.replay("persistent", 10, device="Ascend:8").action == "breaker"


def test_after_a_reset_only_new_events_act():
    scene = breaker_scene()
    scene.replay("persistent", 9, device="Ascend:7")
    old = event(10, device="Ascend:8", kind="replay", verdict="persistent", time=scene.clock.now)
    scene.clock.now += 10.0
    assert scene.reset_breaker() is True
    assert scene.reset_breaker() is False
    assert scene.after(1.0) == []
    assert scene.handler.handle(old).action == "stale"
    assert scene.replay("persistent", 11, device="Ascend:7").action == "isolated"


def test_strikes_from_before_a_reset_do_not_count_after_it():
    scene = breaker_scene()
    scene.raises(1)
    scene.raises(2)
    scene.reset_breaker()
    assert scene.raises(3) == "strike"


def test_when_its_window_has_passed_the_breaker_closes_and_what_was_reported_stays_undone():
    scene = breaker_scene()
    for step in (1, 2, 3):
        scene.raises(step)
    assert scene.after(31.0) == ["breaker"]
    assert scene.after(24 * HOUR) == ["problem"]
    assert scene.isolated == ["Ascend:0", "Ascend:1"]
    assert scene.replay("persistent", 9, device="Ascend:9").action == "isolated"


def test_the_nodes_that_are_allowed_grow_with_the_cluster_and_no_percentage_allows_nothing():
    allowed = {known: Policy().allowed(known) for known in (0, 29, 30, 1000)}
    assert allowed == {0: 2, 29: 2, 30: 3, 1000: 100}
    assert Policy(max_percent=0).allowed(1000) == 0


def test_nodes_that_never_raised_are_known_once_told_of():
    scene = Scene()
    scene.handler.know(Device(f"node{number}", "Ascend:0", number) for number in range(40))
    actions = [scene.replay("persistent", 1, host=f"node{number}").action for number in range(6)]
    assert actions == ["isolated"] * 4 + ["breaker"] * 2


def test_a_node_that_accuses_all_its_devices_stops_no_other():
    scene = Scene()
    scene.tell(1, host="node8")
    actions = [scene.replay("persistent", number, f"Ascend:{number}").action for number in range(4)]
    assert actions == ["isolated", "isolated", "breaker", "breaker"]
    assert scene.replay("persistent", 9, host="node8").action == "isolated"
    assert not scene.handler.triage.breaker.opened()
    assert scene.replay("persistent", 9, host="node9").action == "breaker"
    assert scene.handler.triage.breaker.opened()
