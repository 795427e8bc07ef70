"""Suspicion belongs to the hardware, where its serial is known, and not to the place where it sits."""

import pytest

from asd.handler.act.release import find_device, note_repair
from asd.handler.device_record import device_records
from tests.asd.handler.scene import HOUR, Scene, event, failure


def records(scene):
    found = device_records(scene.handler.store, scene.policy, scene.clock.now)
    return [(each.device, each.serial, each.strikes) for each in found]


def test_a_card_that_was_put_in_place_of_another_begins_anew(tmp_path):
    scene = Scene(path=tmp_path / "h.sqlite")
    for step in (1, 2):
        assert scene.raises(step, serial="SN1") == "strike"
    scene.restart()
    assert scene.raises(3, serial="SN2") == "strike"
    assert scene.after(31.0) == []
    assert records(scene) == [("Ascend:3", "SN1", 2), ("Ascend:3", "SN2", 1)]
    assert find_device(scene.handler.store, "node7", "Ascend:3") == 2


def test_a_card_that_moves_to_another_place_takes_its_strikes_along():
    scene = Scene()
    for step in (1, 2):
        scene.raises(step, serial="SN1")
    assert scene.raises(3, "Ascend:5", serial="SN1") == "waiting"
    assert scene.after(31.0) == ["isolated"]
    assert scene.isolated == ["Ascend:5"]


def test_what_was_known_by_its_place_gets_its_serial_and_what_comes_without_one_is_its_own():
    scene = Scene()
    scene.raises(1)
    scene.raises(2, serial="SN1")
    assert scene.raises(3) == "waiting"
    assert records(scene) == [("Ascend:3", "SN1", 3)]


def test_no_node_speaks_of_a_serial_of_another():
    scene = Scene()
    for step in (1, 2):
        scene.raises(step, serial="SN1")
    assert scene.replay("persistent", 9, host="node8", serial="SN1").action == "isolated"
    assert scene.engine.ours == {("node8", "Ascend:3")}


def test_a_verdict_that_the_engine_could_not_act_upon_waits_for_no_card_that_comes_into_its_place():
    scene = Scene()
    scene.engine.failures = [failure("there is no node", retry=False) for _ in range(2)]
    assert scene.replay("persistent", serial="SN1").action == "failed"
    assert scene.after(2.0) == ["isolating"]
    scene.raises(2, serial="SN2")  # a machine of the same name
    assert [scene.after(60.0), scene.after(600.0), scene.isolated] == [["noted"], [], []]
    assert scene.replay("persistent", 3, serial="SN2").action == "isolated"


def test_made_up_devices_of_a_node_push_out_none_but_its_own():
    scene = Scene()
    scene.raises(1, host="node8")
    scene.handler.handle_many([event(1, device=f"Ascend:{number}", rank=number) for number in range(1500)])
    counts = dict(scene.rows("SELECT host, count(*) FROM device GROUP BY host"))
    assert counts == {"node7": 1024, "node8": 1}


@pytest.mark.parametrize(("before", "after"), [("SN1", "SN2"), ("", "SN2"), ("SN1", "SN1"), ("SN1", "")])
def test_a_device_that_was_repaired_or_replaced_is_given_back_after_a_test_and_begins_anew(before, after):
    scene = Scene()
    scene.replay("persistent", serial=before)
    store, clock = scene.handler.store, scene.clock
    assert note_repair(store, find_device(store, "node7", "Ascend:3"), after, clock.now + 1.0)
    assert scene.after(49 * HOUR) == []  # no time alone gives it back
    is_another = after not in ("", before)
    what = "it was replaced by SN2" if is_another else "it was repaired"
    reasons = [each.reason for each in device_records(store, scene.policy, clock.now) if each.state == "isolated"]
    assert reasons == [
        f"the replay of step 1 of llama found persistent hardware; {what}; it is given back after a stress test that "
        "it passes"
    ]
    scene.stress(failed=False, serial=after)
    assert scene.after(1.0) == ["released"]
    assert scene.isolated == []
    here = [each for each in records(scene) if each[1] == (after or before)]
    assert here == [("Ascend:3", after or before, 0)]
    kept = device_records(store, scene.policy, clock.now)[0].suspicion  # of what was taken away, wherever it sits next
    assert (kept > 0.9) is is_another
