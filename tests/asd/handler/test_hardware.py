"""Suspicion belongs to the hardware, where its serial is known, and not to the place where it sits."""

import pytest

from asd.handler.act.release import find_device, note_repair
from asd.handler.device_record import device_records
from tests.asd.handler.scene import DAY, HOUR, START, Nodes, Scene, event, failure


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
    assert [scene.after(60.0), scene.after(600.0), scene.isolated] == [["dropped"], [], []]
    assert scene.replay("persistent", 3, serial="SN2").action == "isolated"


def scene_of(engine, **more):
    scene = Scene(**more)
    scene.engine = engine
    scene.restart()
    return scene


@pytest.mark.parametrize("serial", ["", "SN1"])
@pytest.mark.parametrize("seen", [True, False])
def test_a_verdict_on_a_node_that_is_gone_does_not_wait_for_the_next_machine_of_its_name(tmp_path, seen, serial):
    scene = scene_of(Nodes(node7=START - HOUR), path=tmp_path / "h.sqlite")
    if seen:
        scene.engine.others.add(("node7", "Ascend:3"))  # as who drains a node before it is taken away
        assert scene.replay("persistent", serial=serial).action == "others"
        scene.after(60.0)
    del scene.engine.made["node7"]
    if not seen:
        assert scene.replay("persistent", serial=serial).action == "failed"
    scene.after(HOUR)
    assert scene.record().error == "there is no node node7"  # said for as long as nobody has that name
    scene.restart()
    scene.engine.others.clear()
    scene.engine.made["node7"] = float(int(scene.clock.now))
    scene.clock.now += 301.0
    assert scene.after(0.0) == ["dropped"]
    assert (scene.after(HOUR), scene.isolated, scene.published) == ([], [], [])
    record = scene.record()
    assert (record.state, *scene.rows("SELECT ending FROM cases")) == ("in use", ("replaced",))
    assert (record.strikes, record.suspicion > 0.9) == ((1, True) if serial else (0, False))
    assert scene.replay("persistent", 3).action == "isolated"  # its own word


def test_a_node_that_was_there_all_the_time_is_taken_out_once_the_engine_knows_it():
    scene = scene_of(Nodes())  # another cluster was asked
    assert scene.replay("persistent").action == "failed"
    scene.after(HOUR)
    scene.engine.made["node7"] = START - DAY
    scene.after(300.0)
    assert scene.isolated == ["Ascend:3"]


def test_a_name_that_no_node_has_is_tried_and_said_for_ever():
    scene = scene_of(Nodes())
    assert scene.replay("persistent", host="node7.example").action == "failed"
    for _ in range(100):
        scene.after(HOUR)
    assert scene.rows("SELECT state, error FROM cases") == [("isolating", "there is no node node7.example")]
    assert scene.handler.engine.failed_tries == 101


def test_an_engine_that_says_nothing_of_a_node_says_nothing_of_another_machine():
    scene = scene_of(Nodes(node7=START + 1.0))
    scene.engine.refuses = True
    assert scene.replay("persistent").action == "isolating"
    scene.engine.refuses = False
    scene.after(2.0)
    assert scene.isolated == ["Ascend:3"]


def test_what_the_next_machine_does_itself_is_held_against_it():
    scene = scene_of(Nodes())
    scene.replay("persistent")
    scene.engine.made["node7"] = START + HOUR
    scene.clock.now += HOUR + 1.0
    assert scene.replay("persistent", 2).action == "merged"
    assert scene.isolated == ["Ascend:3"]


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
    assert scene.rows("SELECT state, wants_test FROM cases") == [("isolated", 1)]
    scene.stress(failed=False, serial=after)
    assert scene.after(1.0) == ["released"]
    assert scene.isolated == []
    here = [each for each in records(scene) if each[1] == (after or before)]
    assert here == [("Ascend:3", after or before, 0)]
    kept = device_records(store, scene.policy, clock.now)[0].suspicion  # of what was taken away, wherever it sits next
    assert (kept > 0.9) is is_another


def test_a_card_that_moved_and_was_noted_as_a_replacement_there_is_one_device_from_then_on():
    scene = Scene()
    scene.raises(1, serial="SN1")
    scene.raises(1, "Ascend:5")
    store = scene.handler.store
    note_repair(store, find_device(store, "node7", "Ascend:5"), "SN1", scene.clock.now)
    assert scene.raises(2, "Ascend:5", serial="SN1") == "strike"
    assert records(scene)[-1] == ("Ascend:5", "SN1", 1)
