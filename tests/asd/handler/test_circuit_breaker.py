"""The circuit breaker: how many devices a day may be taken out."""

import pytest

from asd.handler import Policy
from asd.handler.act.release import ask_release, find_device
from asd.isolator import Device
from tests.asd.handler.scene import HOUR, Scene, breaker_scene, event


def test_the_third_device_in_a_day_of_the_only_node_opens_the_breaker_which_stays_open_after_a_release():
    scene = breaker_scene(release_after_seconds=HOUR)
    assert scene.replay("persistent", 9, device="Ascend:7").action == "breaker"
    assert (scene.isolated, scene.handler.triage.breaker.opened() > 0) == (["Ascend:0", "Ascend:1"], True)
    scene.passes("Ascend:0", "Ascend:1")
    assert scene.after(HOUR) == ["released", "released"]
    assert scene.replay("persistent", 10, device="Ascend:8").action == "breaker"


def test_after_a_reset_only_new_events_act_and_strikes_from_before_do_not_count():
    scene = breaker_scene()
    for step in (1, 2):
        scene.raises(step)
    scene.replay("persistent", 9, device="Ascend:7")
    old = event(10, device="Ascend:8", kind="replay", verdict="persistent", time=scene.clock.now)
    scene.clock.now += 10.0
    assert scene.reset_breaker() is True
    assert scene.reset_breaker() is False
    assert scene.after(1.0) == []
    assert scene.handler.handle(old).action == "stale"
    assert scene.raises(3) == "strike"
    assert scene.replay("persistent", 11, device="Ascend:7").action == "isolated"


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


@pytest.mark.parametrize("before", [0, 60])
@pytest.mark.parametrize("told_by", ["agents", ""])
def test_nodes_are_those_that_somebody_knows_however_many_were_at_fault_before(before, told_by):
    scene = Scene()
    for number in range(before):
        scene.tell(1, host=f"old{number}", wait=100.0)
    scene.clock.now += 40 * 24 * HOUR
    if told_by:
        scene.handler.know_nodes(told_by, {f"node{number}" for number in range(40)})
    else:
        scene.handler.know(Device(f"node{number}", "Ascend:0", number) for number in range(40))
    actions = [scene.replay("persistent", 1, host=f"node{number}").action for number in range(6)]
    assert actions == ["isolated"] * 4 + ["breaker"] * 2


def test_with_100_percent_no_number_of_nodes_opens_it():
    scene = Scene(Policy(max_percent=100))
    assert {scene.replay("persistent", 1, host=f"node{number}").action for number in range(9)} == {"isolated"}


@pytest.mark.parametrize("others", [False, True])
def test_a_bad_board_stops_no_other_node(others):
    scene = Scene()
    if others:  # that raised before
        scene.tell(1, host="node8")
    actions = [scene.replay("persistent", number, f"Ascend:{number}").action for number in range(4)]
    assert actions == ["isolated", "isolated", "breaker", "breaker"]
    assert scene.replay("persistent", 9, host="node8").action == "isolated"
    assert not scene.handler.triage.breaker.opened()
    assert scene.replay("persistent", 9, host="node9").action == "breaker"
    assert scene.handler.triage.breaker.opened()


def test_an_engine_that_isolates_nodes_isolates_all_of_a_bad_board_as_one_node():
    scene = Scene(whole_nodes=True)
    decisions = [scene.replay("persistent", number, f"Ascend:{number}", rank=number) for number in range(18)]
    assert [each.action for each in decisions] == ["isolated"] * 16 + ["breaker"] * 2  # made-up ones have an end
    assert "device 3 of node7" in decisions[2].reason
    actions = [scene.replay("persistent", 9, host=host).action for host in ("node8", "node9")]
    assert actions == ["isolated", "breaker"]


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("ended", ["by the start", "by hand", "by a test"])
def test_what_a_dry_run_would_have_isolated_uses_up_no_breaker(tmp_path, devices, ended):
    scene = Scene(Policy(dry_run=True, release_after_seconds=HOUR), tmp_path / "h.sqlite")
    names = [f"Ascend:{number}" for number in range(devices)]
    for host in ("node1", "node2", "node3"):
        for device in names:
            scene.replay("persistent", device=device, host=host)
    if ended == "by hand":
        ask_release(scene.handler.store, find_device(scene.handler.store, "node1", "Ascend:0"), scene.clock.now)
    elif ended == "by a test":
        scene.clock.now += 1.0
        for host in ("node1", "node2"):
            assert {scene.stress(failed=False, device=device, host=host).action for device in names} == {"passed"}
        assert set(scene.after(HOUR)) == {"released"}
    scene.restart(Policy())
    scene.clock.now += 1.0
    actions = [scene.replay("persistent", 5, host=host).action for host in ("node4", "node5", "node6")]
    assert actions == ["isolated", "isolated", "breaker"]
