"""Many devices at once, and the same value again after a rollback, are software."""

import itertools
import math

import pytest

from asd.handler import Policy, job_of
from tests.asd.handler.scene import HOUR, START, Scene, event
from tests.support.events import moved

# Many devices at once


def test_three_devices_of_a_job_within_thirty_seconds_are_software_and_one_decision_says_so():
    scene = Scene(Policy(strikes=1))
    assert scene.raises(5, "Ascend:0") == "waiting"
    assert scene.raises(6, "Ascend:1", wait=15.0) == "waiting"
    scene.clock.now += 14.0
    assert scene.tell(7, device="Ascend:2").action == "software"
    scene.clock.now += 1.0
    assert scene.tell(8, device="Ascend:4").action == "noted"
    assert scene.after(HOUR) == []
    assert scene.isolated == []


def test_a_device_that_was_taken_out_before_the_others_of_its_burst_were_heard_is_given_back():
    scene = Scene()
    began = scene.clock.now
    for step in (1, 2, 3):
        scene.raises(step, "Ascend:0", wait=1.0)
    assert scene.after(31.0) == ["isolated"]
    for device in ("Ascend:1", "Ascend:2"):
        scene.tell(1, device, time=began + 1.0)
    assert scene.after(31.0) == ["released"]
    assert scene.isolated == []
    assert scene.record("Ascend:0").strikes == 2
    assert [told.kind for told in scene.published] == ["isolation", "recovery"]
    assert scene.published[1].recovered_by == "handler"
    scene.tell(kind="recovery", device="Ascend:0", recovered_by="handler")  # as its own log tells it
    assert scene.record("Ascend:0").strikes == 2


def test_devices_further_apart_or_of_other_jobs_are_no_burst():
    scene = Scene(Policy(strikes=1, max_devices=9, max_percent=100))
    for number, (wait, run) in enumerate([(100, "a"), (16, "a"), (16, "a"), (1, "b"), (1, "c")]):
        scene.raises(number + 1, f"Ascend:{number}", wait=wait, run=run)
    scene.after(31.0)
    assert len(scene.isolated) == 5
    assert scene.rows("SELECT count(*) FROM strike WHERE revoked <> ''")[0] == (0,)


def test_ranks_of_a_node_that_found_no_common_name_lose_no_device_to_the_same_steps():
    """16 ranks on two nodes, each with a run of its own name, with three strikes in the same steps."""
    scene = Scene(Policy(max_devices=99, max_percent=100))
    for step in (1, 2, 3):
        for number in range(16):
            where = {"host": f"node{number // 8}", "rank": number, "run": f"asd_run-{number}"}
            scene.raises(step, f"Ascend:{number % 8}", 0.1, **where)
        scene.after(60.0)
    assert scene.after(HOUR) == []
    assert scene.isolated == []
    scene = Scene()
    for number in range(2):
        scene.raises(1, f"Ascend:{number}", 0.1, run=f"asd_run-{number}")
    assert scene.tell(1, device="Ascend:2", run="another").action == "software"


def test_attempts_of_one_job_are_one_job():
    assert [job_of(run) for run in ("a", "a+2", "a+13", "a+b", "+2")] == ["a", "a", "a", "a+b", ""]
    scene = Scene(Policy(strikes=1))
    for number, run in enumerate(("a", "a+2", "a+3")):
        scene.raises(number, f"Ascend:{number}", wait=1.0, run=run)
    assert scene.after(HOUR) == []


def test_the_same_step_is_the_same_moment_whatever_the_clocks_say():
    scene = Scene(Policy(strikes=1))
    scene.clock.now += 1000.0
    for number in range(3):
        late = event(5, device=f"Ascend:{number}", time=scene.clock.now - 45.0 * number)
        scene.handler.handle(late)
    assert scene.after(HOUR) == []


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_of_many_devices_only_the_one_with_a_hardware_verdict_counts_in_any_order(order):
    scene = Scene(Policy(strikes=1))
    scene.clock.now += 100.0
    events = [event(5, device=f"Ascend:{number}", time=scene.clock.now) for number in range(3)]
    events.append(event(5, device="Ascend:1", time=scene.clock.now, kind="replay", verdict="transient"))
    for number in order:
        scene.handler.handle(events[number])
    scene.after(31.0)
    assert scene.isolated == ["Ascend:1"]


def test_a_burst_revokes_no_strikes_from_before():
    scene = Scene()
    scene.raises(1, "Ascend:0")
    scene.raises(2, "Ascend:0")
    for number in range(3):
        scene.raises(9, f"Ascend:{number}", wait=5.0)
    assert scene.raises(20, "Ascend:0") == "waiting"
    assert scene.after(31.0) == ["isolated"]


# The same again after a rollback


@pytest.mark.parametrize("value", [3e6, math.inf, math.nan])
@pytest.mark.parametrize("second", ["llama+2", "llama"])
def test_the_same_value_in_another_attempt_is_software(value, second):
    scene = Scene(Policy(strikes=2))
    first = "llama" if second != "llama" else "llama+2"
    assert scene.raises(5, run=first, value=value) == "strike"
    assert scene.raises(5, run=second, value=value) == "software"
    assert scene.after(HOUR) == []
    assert scene.raises(6, run=second) == "strike"


@pytest.mark.parametrize(
    "changes", [{"value": 4e6}, {"checkpoint": "b"}, {"step": 6}, {"run": "llama+x"}, {"run": "llama"}]
)
def test_another_value_checkpoint_step_or_job_is_no_repetition(changes):
    scene = Scene(Policy(strikes=9))
    scene.raises(5, value=3e6)
    scene.clock.now += 100.0
    fields = {"run": "llama+2", "value": 3e6, "step": 5, "time": scene.clock.now, **changes}
    assert scene.handler.handle(event(**fields)).action in ("strike", "duplicate")


def test_the_same_value_that_moves_with_a_device_to_another_rank_is_the_device():
    scene = Scene()
    scene.raises(5, value=3e6)
    scene.clock.now += 100.0
    decision = scene.handler.handle(moved(event(5, run="llama+2", value=3e6, time=scene.clock.now), rank=0))
    assert (decision.action, scene.rows("SELECT cause FROM cases")) == ("isolated", [("moved",)])


def test_a_value_that_moves_with_a_device_that_is_out_belongs_to_its_case():
    scene = Scene()
    scene.raises(5, value=3e6)
    assert scene.replay("persistent", 6).action == "isolated"
    scene.clock.now += 100.0
    again = moved(event(5, run="llama+2", value=3e6, time=scene.clock.now), rank=0)
    assert scene.handler.handle(again).action == "merged"
    assert scene.rows("SELECT last_fault FROM cases") == [(scene.clock.now,)]


def test_where_another_device_was_at_fault_in_that_step_too_the_same_value_is_software():
    scene = Scene()
    scene.raises(5, "Ascend:3", value=math.nan)
    scene.raises(5, "Ascend:2", value=math.nan, wait=0.0)
    for device, rank in (("Ascend:3", 2), ("Ascend:2", 3)):  # they have changed places, and both raise again
        again = moved(event(5, device=device, run="llama+2", value=math.nan, time=scene.clock.now), rank=rank)
        assert scene.handler.handle(again).action in ("software", "noted")
    assert scene.after(HOUR) == []


@pytest.mark.parametrize(("before", "after"), [(-1, 0), (3, -1), (3, 3)])
def test_a_device_stays_unless_it_is_known_that_its_rank_has_changed(before, after):
    scene = Scene(Policy(strikes=2))
    scene.handler.handle(moved(event(5, value=3e6, time=scene.clock.now), rank=before))
    scene.clock.now += 100.0
    again = moved(event(5, run="llama+2", value=3e6, time=scene.clock.now), rank=after)
    assert scene.handler.handle(again).action == "software"
    assert (scene.after(HOUR), scene.isolated) == ([], [])


def test_persistent_hardware_is_isolated_though_the_value_came_again():
    scene = Scene()
    scene.raises(5, value=3e6)
    scene.raises(5, value=3e6, run="llama+2")
    assert scene.replay("persistent", 5, run="llama+2").action == "isolated"


@pytest.mark.parametrize("hosts_of", [None, lambda _job: ()], ids=["trusted", "unknown"])
@pytest.mark.parametrize(("nodes", "ranks", "attempts"), [(64, 1, 1), (128, 2, 1), (1, 1, 4)])
def test_bad_data_of_a_large_job_or_of_one_that_moves_isolate_nobody(nodes, ranks, attempts, hosts_of):
    scene = Scene(hosts_of=hosts_of)
    scene.handler.know_nodes("agents", {f"n{number}" for number in range(1000)})
    for attempt in range(attempts):
        for step in (1, 2, 3):
            scene.clock.now += 100.0
            for node in range(nodes):
                for rank in range(ranks):
                    where = {"host": f"n{node + attempt}", "rank": node * ranks + rank, "run": f"llama+{attempt + 1}"}
                    scene.tell(step, f"Ascend:{rank}", wait=0.01, **where)
        scene.after(31.0)
    scene.after(1.0)
    assert scene.isolated == []


def test_an_event_of_a_flood_costs_no_more_than_the_first():
    handler, steps, costs = Scene().handler, itertools.count(), []
    handler.store.db.set_progress_handler(lambda: next(steps) < 0, 100)  # so many instructions of SQLite
    for number in range(0, 1600, 200):
        began = next(steps)
        handler.handle_many(
            [event(number + n, device=f"Ascend:{n % 64}", time=START + number / 100 + n / 200) for n in range(200)]
        )
        costs.append(next(steps) - began)
    assert costs[-1] < 2 * costs[1]
