"""Every rule of the fault handler, one at a time, with an engine that is a set."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asd import ConfigError, Event, Level
from asd.errors import IsolationError
from asd.handler import FaultHandler, Policy, Store, job_of
from asd.handler.act.release import ask_release, drop_verdict
from asd.handler.standing import device_standings
from asd.isolator import Device, Held

START = 1_700_000_000.0
MINUTE, HOUR = 60.0, 3600.0


class Clock:
    def __init__(self, now=START):
        self.now = now

    def __call__(self):
        return self.now


class Engine:
    """An engine in memory; `others` are held out by somebody else."""

    name = "set"

    def __init__(self):
        self.ours, self.others, self.calls, self.failures = set(), set(), [], []

    def held(self, device):
        return Held.OTHERS if device[:2] in self.others else Held.OURS if device[:2] in self.ours else Held.FREE

    def isolate(self, device, reason, event_id):
        self.calls.append(("isolate", device, reason, event_id))
        if self.failures:
            raise self.failures.pop(0)
        self.ours.add(device[:2])

    def release(self, device):
        self.calls.append(("release", device))
        if self.failures:
            raise self.failures.pop(0)
        self.ours.discard(device[:2])


class Scene:
    """A handler with everything around it."""

    def __init__(self, policy=None, path=None, **more):
        self.clock, self.engine, self.published = Clock(), Engine(), []
        self.policy, self.path, self.more = policy or Policy(), path, more
        self.begin()

    def begin(self):
        self.handler = FaultHandler(
            Store(self.path), self.policy, self.engine, self.published.append, self.clock, **self.more
        )

    def restart(self, policy=None):
        self.handler.close()
        self.policy = policy or self.policy
        self.begin()

    def raises(self, step, device="Ascend:3", wait=100.0, **changes):
        """A first-level anomaly that happens `wait` seconds after what was before; returns what is done about it."""
        self.clock.now += wait
        return self.handler.handle(event(step, device=device, time=self.clock.now, **changes)).action

    def replay(self, verdict, step=1, device="Ascend:3", **changes):
        changes.setdefault("time", self.clock.now)
        return self.handler.handle(event(step, device=device, kind="replay", verdict=verdict, **changes))

    def after(self, seconds):
        self.clock.now += seconds
        return [decision.action for decision in self.handler.tick()]

    @property
    def isolated(self):
        return sorted(device for _, device in self.engine.ours)


def event(step=1, **changes):
    fields = {
        "run": "llama", "rank": 3, "host": "node7", "device": "Ascend:3", "step": step, "checkpoint": "a",
        "value": 2e6 + step, "limits": (1e6,), "level": Level.ERROR, "kind": "anomaly", "rule": "threshold",
        "feature": "l2", "reason": "r", "refused": True, "time": START, "evidence": f"evidence/{step}",
    }  # fmt: skip
    device = changes.get("device", "Ascend:3")
    fields["rank"] = int(device[-1]) if device[-1:].isdecimal() else 0  # the id of an event tells ranks apart
    return Event(**{**fields, **changes})


# Strikes


def test_three_strikes_isolate_once_nobody_else_has_raised_for_the_settling_time():
    scene = Scene()
    assert [scene.raises(step) for step in (1, 2, 3)] == ["strike", "strike", "waiting"]
    assert scene.after(29.9) == []
    assert scene.isolated == []
    assert scene.after(0.2) == ["isolated"]
    assert scene.isolated == ["Ascend:3"]
    assert scene.after(1000.0) == []


def test_a_decision_says_in_one_sentence_what_was_decided_and_why():
    scene = Scene()
    scene.raises(1)
    decision = scene.handler.handle(event(2, time=scene.clock.now))
    assert decision.reason == "Ascend:3 on node7: strike 2 of 3 within 480 minutes."
    assert (decision.device, decision.event_id) == (Device("node7", "Ascend:3", 3), event(2).id)
    assert decision.time == scene.clock.now


def test_the_isolation_event_tells_of_the_strike_that_was_one_too_many():
    scene = Scene()
    for step in (1, 2, 3):
        scene.raises(step)
    scene.after(31.0)
    (told,) = scene.published
    assert (told.kind, told.assertion, told.step, told.evidence) == ("isolation", "occur", 3, "evidence/3")
    assert (
        told.reason == "Ascend:3 on node7: it has 3 strikes within 480 minutes, so it is isolated by the isolator set."
    )
    assert (told.key, told.time, told.verdict) == (event(3).id, scene.clock.now, "")
    (call,) = scene.engine.calls
    assert call == (
        "isolate", Device("node7", "Ascend:3", 3), "Ascend:3 on node7: it has 3 strikes within 480 minutes.",
        event(3).id,
    )  # fmt: skip


def test_all_anomalies_of_one_step_of_one_run_are_one_strike():
    scene = Scene()
    for step, checkpoint in itertools.product((1, 2), "abcd"):
        assert scene.raises(step, checkpoint=checkpoint) == "strike"
    assert scene.after(HOUR) == []
    assert scene.raises(1, run="other") == "waiting"


def test_strikes_leave_the_window():
    scene = Scene()
    scene.raises(1)
    scene.raises(2)
    scene.clock.now += 480 * MINUTE - 100
    assert scene.raises(3, wait=0.0) == "strike"
    assert scene.after(31.0) == []


def test_second_level_anomalies_followers_and_problems_do_nothing():
    scene = Scene(Policy(strikes=1))
    for changes in ({"level": Level.WARNING}, {"kind": "follower"}, {"kind": "problem"}, {"kind": "isolation"},
                    {"kind": "recovery"}, {"kind": "replay"}):  # fmt: skip
        assert scene.raises(1, **changes) == "noted"
    assert scene.after(HOUR) == []


@pytest.mark.parametrize("changes", [{"device": "unknown"}, {"device": ""}, {"host": ""}])
def test_what_names_no_device_isolates_nobody(changes):
    scene = Scene(Policy(strikes=1))
    assert scene.raises(1, **changes) == "noted"
    assert scene.replay("persistent", **changes).action == "noted"
    assert scene.engine.calls == []


def test_ranks_that_share_a_device_have_strikes_of_their_own():
    scene = Scene(Policy(many_devices=9))
    for rank, step in ((0, 1), (1, 2), (0, 3), (1, 4)):
        assert scene.raises(step, device="CPU:0", rank=rank) == "strike"
    assert scene.raises(5, device="CPU:0", rank=1) == "waiting"
    assert scene.after(31.0) == ["isolated"]
    assert scene.engine.calls[0][1] == Device("node7", "CPU:0", 1)


def test_anomalies_whose_step_is_not_known_are_one_strike_while_they_are_close():
    scene = Scene()
    for wait, action in ((0.0, "strike"), (200.0, "strike"), (301.0, "strike"), (302.0, "waiting")):
        assert scene.raises(0, wait=wait, key=f"after {wait}") == action


# Verdicts


def test_a_persistent_verdict_isolates_at_once():
    scene = Scene()
    scene.raises(7)
    decision = scene.replay("persistent", 7)
    assert decision.action == "isolated"
    assert decision.reason == (
        "Ascend:3 on node7: the replay of step 7 of llama found persistent hardware, so it is isolated by the isolator "
        "set."
    )
    assert scene.isolated == ["Ascend:3"]
    assert [told.verdict for told in scene.published] == ["persistent"]


def test_a_transient_verdict_confirms_the_strike_and_adds_none():
    scene = Scene()
    for step in (1, 2):
        scene.raises(step)
        assert scene.replay("transient", step).action == "strike"
    scene.raises(3)
    assert scene.isolated == []
    scene.after(29.0)
    assert scene.replay("transient", 3).action == "isolated"  # confirmed: no reason to wait for others


def test_a_transient_verdict_whose_anomaly_never_came_is_a_strike():
    scene = Scene()
    assert [scene.replay("transient", step).action for step in (1, 2, 3)] == ["strike", "strike", "isolated"]


@pytest.mark.parametrize("verdict_first", [False, True])
def test_a_software_verdict_revokes_the_strikes_of_its_step_whatever_comes_first(verdict_first):
    scene = Scene(Policy(strikes=1))
    if verdict_first:
        scene.replay("software", 5, device="Ascend:1")
        assert scene.raises(5, wait=1.0) == "noted"
    else:
        assert scene.raises(5) == "waiting"
        decision = scene.replay("software", 5, device="Ascend:1")
        assert decision.reason == (
            "Ascend:1 on node7: the replay of step 5 of llama found software or data: 1 more strike of this step "
            "revoked, nobody is isolated for it."
        )
    assert scene.after(HOUR) == []
    assert scene.isolated == []


@pytest.mark.parametrize("order", [("software", "transient"), ("transient", "software")])
def test_of_two_verdicts_about_the_same_step_of_a_device_software_holds(order):
    scene = Scene(Policy(strikes=1, max_devices=0))
    for verdict, key in zip(order, "xy", strict=True):
        scene.replay(verdict, 5, key=key)
    assert scene.handler._judge.book.standing(1, scene.clock.now) == (0, 0)


@pytest.mark.parametrize("software_first", [False, True])
def test_a_device_whose_hardware_failed_keeps_its_strike_when_anothers_replay_finds_software(software_first):
    scene = Scene(Policy(strikes=2))
    replays = [("transient", "Ascend:3"), ("software", "Ascend:4")]
    for verdict, device in reversed(replays) if software_first else replays:
        scene.replay(verdict, 5, device=device)
    assert scene.replay("transient", 9).action == "isolated"


def test_an_undetermined_verdict_leaves_the_strike():
    scene = Scene()
    scene.raises(1)
    assert scene.replay("undetermined", 1).action == "noted"
    scene.raises(2)
    assert scene.raises(3) == "waiting"


# Many devices at once


def test_three_devices_of_a_job_within_thirty_seconds_are_software_and_one_decision_says_so():
    scene = Scene(Policy(strikes=1))
    assert scene.raises(5, "Ascend:0") == "waiting"
    assert scene.raises(6, "Ascend:1", wait=15.0) == "waiting"
    scene.clock.now += 14.0
    decision = scene.handler.handle(event(7, device="Ascend:2", time=scene.clock.now))
    assert decision.action == "software"
    assert decision.reason == (
        "Ascend:2 on node7: 3 devices of job llama raised within 30 s: software or data, their strikes are revoked and "
        "nobody is isolated for them unless a replay finds hardware."
    )
    assert scene.raises(8, "Ascend:4", wait=1.0) == "strike"  # one more of them
    assert scene.after(HOUR) == []
    assert scene.isolated == []


def test_devices_further_apart_or_of_other_jobs_are_no_burst():
    scene = Scene(Policy(strikes=1, max_devices=9, max_percent=100))
    for number, (wait, run) in enumerate([(100, "a"), (16, "a"), (16, "a"), (1, "b"), (1, "c")]):
        scene.raises(number + 1, f"Ascend:{number}", wait=wait, run=run)
    scene.after(31.0)
    assert len(scene.isolated) == 5
    assert scene.handler.store.db.execute("SELECT count(*) FROM strike WHERE revoked <> ''").fetchone() == (0,)


def test_ranks_of_a_node_that_found_no_common_name_lose_no_device_to_the_same_steps():
    """16 ranks on two nodes, each with a run of its own name, with three strikes in the same steps."""
    scene = Scene(Policy(max_devices=99, max_percent=100))
    for step in (1, 2, 3):
        for number in range(16):
            scene.raises(
                step, f"Ascend:{number % 8}", 0.1, host=f"node{number // 8}", run=f"asd_run-{number}", rank=number
            )
        scene.after(60.0)
    assert scene.after(HOUR) == []
    assert scene.isolated == []
    scene = Scene()
    for number in range(2):
        scene.raises(1, f"Ascend:{number}", 0.1, run=f"asd_run-{number}")
    decision = scene.handler.handle(event(1, device="Ascend:2", run="another", time=scene.clock.now))
    assert decision.reason.startswith("Ascend:2 on node7: 3 devices of node node7 raised within 30 s: software or data")


def test_a_step_that_comes_back_on_another_device_is_another_event():
    """A job begun anew under a fixed ASD_RUN, at the same step, rank and checkpoint."""
    scene = Scene(Policy(strikes=1))
    assert scene.raises(7, "Ascend:3", rank=0) == "waiting"
    assert scene.raises(7, "Ascend:4", rank=0, value=3e6) == "waiting"
    assert scene.raises(7, "Ascend:4", rank=0) == "duplicate"
    assert scene.raises(8, "Ascend:3", rank=0, host="node8") == "waiting"
    assert scene.raises(8, "Ascend:3", rank=0, host="node9", value=4e6) == "waiting"


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
    (sentence,) = scene.handler.store.db.execute("SELECT reason FROM decision").fetchone()
    assert sentence == (
        "Ascend:3 on node7: job llama had the very same value at a in step 5 in another attempt: software or data, the "
        "strikes of this step are revoked and nobody is isolated for them."
    )
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
    decision = scene.handler.handle(replace(event(5, run="llama+2", value=3e6, time=scene.clock.now), rank=0))
    assert decision.action == "isolated"
    assert "a had the very same value in step 5 when it was rank 3, so it is isolated" in decision.reason


def test_a_value_that_moves_with_a_device_that_is_out_belongs_to_its_case():
    scene = Scene()
    scene.raises(5, value=3e6)
    assert scene.replay("persistent", 6).action == "isolated"
    scene.clock.now += 100.0
    again = replace(event(5, run="llama+2", value=3e6, time=scene.clock.now), rank=0)
    assert scene.handler.handle(again).action == "merged"
    assert scene.handler.store.db.execute("SELECT last_fault FROM cases").fetchall() == [(scene.clock.now,)]


def test_where_another_device_was_at_fault_in_that_step_too_the_same_value_is_software():
    scene = Scene()
    scene.raises(5, "Ascend:3", value=math.nan)
    scene.raises(5, "Ascend:2", value=math.nan, wait=0.0)
    for device, rank in (("Ascend:3", 2), ("Ascend:2", 3)):  # they have changed places, and both raise again
        again = replace(event(5, device=device, run="llama+2", value=math.nan, time=scene.clock.now), rank=rank)
        assert scene.handler.handle(again).action in ("software", "noted")
    assert scene.after(HOUR) == []


def test_where_another_device_had_the_value_too_one_that_moves_to_a_third_rank_stays():
    scene = Scene()
    scene.raises(5, "Ascend:3", value=math.nan)
    scene.raises(5, "Ascend:2", value=math.nan, wait=0.0)
    again = replace(event(5, run="llama+2", value=math.nan, time=scene.clock.now), rank=0)
    assert scene.handler.handle(again).action == "software"
    assert (scene.after(HOUR), scene.isolated) == ([], [])


@pytest.mark.parametrize(("before", "after"), [(-1, 0), (3, -1), (3, 3)])
def test_a_device_stays_unless_it_is_known_that_its_rank_has_changed(before, after):
    scene = Scene(Policy(strikes=2))
    scene.handler.handle(replace(event(5, value=3e6, time=scene.clock.now), rank=before))
    scene.clock.now += 100.0
    again = replace(event(5, run="llama+2", value=3e6, time=scene.clock.now), rank=after)
    assert scene.handler.handle(again).action == "software"
    assert (scene.after(HOUR), scene.isolated) == ([], [])


def test_persistent_hardware_is_isolated_though_the_value_came_again():
    scene = Scene()
    scene.raises(5, value=3e6)
    scene.raises(5, value=3e6, run="llama+2")
    assert scene.replay("persistent", 5, run="llama+2").action == "isolated"


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


def test_clocks_that_are_hours_apart_isolate_no_device_that_had_fewer_strikes():
    scene = Scene(Policy(many_devices=9))
    scene.clock.now += 12 * HOUR
    for step in (1, 2, 3):
        scene.raises(step, "Ascend:1", host="node1")
        for hours, device in ((-5.0, "Ascend:0"), (5.0, "Ascend:2")):
            scene.handler.handle(
                event(min(step, 2), device=device, host=f"node{device[-1]}", time=scene.clock.now + hours * HOUR)
            )
        scene.after(31.0)
    assert scene.isolated == ["Ascend:1"]


# Doubles and old events


def test_an_event_that_comes_twice_counts_once_also_after_a_restart(tmp_path):
    scene = Scene(path=tmp_path / "h.sqlite")
    scene.raises(1)
    again = event(1, time=scene.clock.now)
    assert scene.handler.handle(again).action == "duplicate"
    scene.restart()
    assert scene.handler.handle(again).action == "duplicate"
    assert scene.handler.handle(event(1, kind="follower")).action == "noted"
    assert scene.handler.handle(event(1, kind="follower")).action == "duplicate"


def test_events_from_before_the_first_start_are_recorded_and_cause_nothing():
    scene = Scene(Policy(strikes=1))
    for step in range(3):
        assert scene.handler.handle(event(step + 1, time=START - 61.0)).action == "stale"
    assert scene.replay("persistent", 4, time=START - 61.0).action == "stale"
    assert scene.after(HOUR) == []
    assert scene.handler.store.db.execute("SELECT count(*) FROM strike").fetchone() == (4,)


def test_a_clock_that_is_a_minute_behind_hides_nothing():
    scene = Scene()
    assert scene.replay("persistent", 4, time=START - 59.0).action == "isolated"


def test_with_from_beginning_old_events_act():
    scene = Scene(from_beginning=True)
    assert scene.replay("persistent", 4, time=START - HOUR).action == "isolated"


def test_after_a_restart_new_news_of_old_events_still_act_but_not_of_very_old_ones(tmp_path):
    scene = Scene(path=tmp_path / "h.sqlite")
    scene.clock.now += 24 * HOUR
    scene.restart()
    assert scene.replay("persistent", 4, device="Ascend:1", time=scene.clock.now - 9 * HOUR).action == "stale"
    assert scene.replay("persistent", 4, device="Ascend:2", time=scene.clock.now - 7 * HOUR).action == "isolated"


def test_a_clock_that_goes_back_blocks_nothing(tmp_path):
    scene = Scene(path=tmp_path / "h.sqlite")
    scene.raises(1)
    scene.raises(2)
    scene.raises(3)
    scene.clock.now -= 5 * HOUR
    assert scene.after(0.0) == []
    assert scene.after(31.0) == ["isolated"]
    assert scene.replay("persistent", 9, device="Ascend:4").action == "isolated"
    assert scene.after(48 * HOUR) == ["released", "released"]


def test_a_strike_from_the_far_future_leaves_the_window_all_the_same():
    scene = Scene()
    scene.handler.handle(event(1, time=START + 1000 * HOUR))
    assert scene.handler._judge.book.standing(1, START) == (0, 1)
    assert scene.handler._judge.book.standing(1, START + 8 * HOUR + 61.0) == (0, 0)


# The circuit breaker


def breaker_scene(devices=2, **policy):
    scene = Scene(Policy(**policy))
    for number in range(devices):
        assert scene.replay("persistent", number + 1, device=f"Ascend:{number}").action == "isolated"
    return scene


def test_the_third_device_in_a_day_opens_the_breaker_and_is_only_reported():
    scene = breaker_scene()
    decision = scene.replay("persistent", 9, device="Ascend:7")
    assert decision.action == "breaker"
    assert decision.reason == (
        "Ascend:7 on node7: the replay of step 9 of llama found persistent hardware, but the circuit breaker is open: "
        "2 devices were taken out within 24 h, and 2 are allowed, so it is only reported."
    )
    assert scene.isolated == ["Ascend:0", "Ascend:1"]


def test_the_breaker_stays_open_though_a_device_was_released():
    scene = breaker_scene(release_after_seconds=HOUR)
    scene.replay("persistent", 9, device="Ascend:7")
    assert scene.after(HOUR) == ["released", "released"]
    assert scene.replay("persistent", 10, device="Ascend:8").action == "breaker"


def test_after_a_reset_only_new_events_act():
    scene = breaker_scene()
    scene.replay("persistent", 9, device="Ascend:7")
    old = event(10, device="Ascend:8", kind="replay", verdict="persistent", time=scene.clock.now)
    scene.clock.now += 10.0
    assert scene.handler.reset_breaker() is True
    assert scene.handler.reset_breaker() is False
    assert scene.after(1.0) == []
    assert scene.handler.handle(old).action == "stale"
    assert scene.replay("persistent", 11, device="Ascend:7").action == "isolated"


def test_strikes_from_before_a_reset_do_not_count_after_it():
    scene = breaker_scene()
    scene.raises(1)
    scene.raises(2)
    scene.handler.reset_breaker()
    assert scene.raises(3) == "strike"


def test_when_its_window_has_passed_the_breaker_closes_and_what_was_reported_stays_undone():
    scene = breaker_scene()
    for step in (1, 2, 3):
        scene.raises(step)
    assert scene.after(31.0) == ["breaker"]
    assert scene.after(24 * HOUR) == ["problem"]
    assert scene.isolated == ["Ascend:0", "Ascend:1"]
    assert scene.replay("persistent", 9, device="Ascend:9").action == "isolated"


def test_the_percentage_limits_large_numbers_and_no_percentage_allows_nothing():
    assert [Policy(max_devices=50).allowed(known) for known in (0, 10, 29, 30, 499, 500, 9999)] == [
        2, 2, 2, 3, 49, 50, 50
    ]  # fmt: skip
    assert [Policy(max_devices=count).allowed(10) for count in (0, 1, 2)] == [0, 1, 2]
    assert Policy(max_percent=0).allowed(1000) == 0


def test_devices_that_never_raised_are_known_once_told_of():
    scene = Scene(Policy(max_devices=50))
    scene.handler.know(Device("node1", f"Ascend:{number}", number) for number in range(40))
    actions = [scene.replay("persistent", 1, f"Ascend:{number}", host="node1").action for number in range(6)]
    assert actions == ["isolated"] * 4 + ["breaker"] * 2


# Ownership


def test_what_others_hold_is_left_alone_and_asked_about_again_later():
    scene = Scene()
    scene.engine.others.add(("node7", "Ascend:3"))
    decision = scene.replay("persistent", 1)
    assert decision.action == "others"
    assert decision.reason == (
        "Ascend:3 on node7: the replay of step 1 of llama found persistent hardware, but somebody else holds it out, "
        "so it is left alone."
    )
    assert scene.replay("persistent", 2).action == "others"
    assert scene.engine.calls == []
    scene.engine.others.clear()
    scene.clock.now += 61.0
    assert scene.replay("persistent", 3).action == "isolated"


def test_for_a_minute_nobody_asks_again_who_holds_a_device():
    scene, asked = Scene(), []
    held = scene.engine.held
    scene.engine.held = lambda device: (asked.append(device), held(device))[1]
    scene.engine.others.add(("node7", "Ascend:3"))
    for step in (1, 2, 3):
        assert scene.replay("persistent", step).action == "others"
    assert len(asked) == scene.handler.store.db.execute("SELECT count(*) FROM cases").fetchone()[0] == 1


def test_who_holds_a_device_is_asked_again_when_the_clock_has_gone_back():
    scene = Scene()
    scene.engine.others.add(("node7", "Ascend:3"))
    assert scene.replay("persistent", 1).action == "others"
    scene.engine.others.clear()
    scene.clock.now -= 10.0
    assert scene.replay("persistent", 2).action == "isolated"


def test_what_others_took_over_is_not_released():
    scene = breaker_scene(1)
    scene.engine.others.add(("node7", "Ascend:0"))
    assert scene.after(48 * HOUR) == ["others"]
    assert [call[0] for call in scene.engine.calls] == ["isolate"]
    assert [told.kind for told in scene.published] == ["isolation"]


def test_later_events_are_merged_into_the_open_case():
    scene = breaker_scene(1)
    for step in range(10):
        assert scene.raises(100 + step, "Ascend:0") == "merged"
    assert scene.replay("persistent", 200, "Ascend:0").action == "merged"
    assert len(scene.published) == len(scene.engine.calls) == 1


def test_a_case_takes_over_that_the_hardware_is_broken_for_good():
    scene = Scene()
    for step in (1, 2, 3):
        scene.raises(step)
    assert scene.after(31.0) == ["isolated"]
    for step, verdict in enumerate(("transient", "persistent", "transient"), start=1):  # the gravest stays
        assert scene.replay(verdict, step).action == "merged"
    scene.engine.ours.clear()
    assert scene.after(601.0) == ["released"]
    assert [told.verdict for told in scene.published] == ["", "persistent"]


def test_what_was_given_back_at_the_engine_is_closed_and_told():
    scene = breaker_scene(1)
    scene.engine.ours.clear()
    assert scene.after(601.0) == ["released"]
    assert [told.kind for told in scene.published] == ["isolation", "recovery"]
    assert scene.published[1].reason == (
        "Ascend:0 on node7: somebody else gave it back (isolator set), so it may work again."
    )


# Release


def test_a_device_without_a_fault_for_two_days_is_released_and_starts_anew():
    scene = breaker_scene(1)
    scene.clock.now += HOUR
    scene.raises(5, "Ascend:0", wait=0.0)
    assert scene.after(48 * HOUR - 1.0) == []
    assert scene.after(1.0) == ["released"]
    assert scene.isolated == []
    assert [(told.kind, told.assertion) for told in scene.published] == [
        ("isolation", "occur"),
        ("recovery", "recover"),
    ]
    assert scene.published[1].reason == "Ascend:0 on node7: it had no fault for 48 h, so it may work again."
    assert scene.raises(6, "Ascend:0") == "strike"


def test_a_release_time_of_zero_means_by_hand_only():
    scene = breaker_scene(1, release_after_seconds=0)
    assert scene.after(10_000 * HOUR) == []


def test_a_verdict_from_before_the_release_does_not_isolate_again():
    scene = breaker_scene(1, release_after_seconds=HOUR)
    late = event(77, device="Ascend:0", kind="replay", verdict="persistent", time=scene.clock.now + 5.0)
    scene.after(HOUR)
    assert scene.handler.handle(late).action == "stale"


# The engine fails


def failure(reason="no answer", **more):
    return IsolationError(Device("node7", "Ascend:3", 3), "set", reason, **more)


def test_a_failing_engine_is_tried_again_with_growing_pauses():
    scene = Scene()
    scene.engine.failures = [failure() for _ in range(4)] + [OSError("broken")]
    assert scene.replay("persistent").action == "isolating"
    outcome = [scene.after(1.0) for _ in range(31)]
    tries = [second for second, actions in enumerate(outcome, 1) if actions]
    assert tries == [1, 3, 7, 15, 31]
    assert [outcome[second - 1] for second in tries] == [
        ["isolating"], ["isolating"], ["isolating"], ["failed"], ["isolated"]
    ]  # fmt: skip
    assert len(scene.published) == 1


def test_no_pause_is_longer_than_the_longest():
    scene = Scene(Policy(retry_seconds=1.0, longest_pause_seconds=4.0))
    scene.engine.failures = [failure() for _ in range(6)]
    assert scene.replay("persistent").action == "isolating"
    outcome = [scene.after(1.0) for _ in range(23)]
    assert [second for second, actions in enumerate(outcome, 1) if actions] == [1, 3, 7, 11, 15, 19]
    assert scene.isolated == ["Ascend:3"]


def test_a_refused_isolation_counts_for_the_breaker_until_it_is_dropped():
    scene = Scene(Policy(max_devices=1))
    scene.engine.failures = [failure("no such node", retry=False)]
    assert scene.replay("persistent").action == "failed"
    assert scene.replay("persistent", device="Ascend:4").action == "breaker"
    assert drop_verdict(scene.handler.store, 1, scene.clock.now)
    scene.handler.reset_breaker()
    scene.clock.now += 1.0
    assert scene.replay("persistent", device="Ascend:5").action == "isolated"


def test_a_failure_says_what_the_engine_said():
    scene = Scene()
    scene.engine.failures = [failure("scontrol took more than 10 s")]
    assert scene.replay("persistent").reason == (
        "Ascend:3 on node7: set can't isolate it (scontrol took more than 10 s); it is tried again in 1 s."
    )


def test_a_refusal_is_reported_at_once_and_tried_again_as_long_as_the_verdict_stands():
    scene = Scene()
    scene.engine.failures = [failure("answered 403", retry=False) for _ in range(20)]
    decision = scene.replay("persistent")
    assert (decision.action, decision.reason) == (
        "failed", "Ascend:3 on node7: set can't isolate it (answered 403); it is tried again in 1 s."
    )  # fmt: skip
    outcome = [scene.after(10.0) for _ in range(6 * 24)]
    assert {action for actions in outcome for action in actions} == {"isolating"}
    (standing,) = device_standings(scene.handler.store, scene.policy, scene.clock.now)
    assert (standing.state, standing.error, standing.attempts) == ("isolating", "answered 403", 12)
    assert scene.clock.now < standing.next_try <= scene.clock.now + 300.0
    assert (scene.handler.failed_tries, scene.published) == (12, [])
    scene.engine.failures.clear()
    assert scene.after(300.0) == ["isolated"]
    assert (scene.isolated, [told.kind for told in scene.published]) == (["Ascend:3"], ["isolation"])


def test_a_handler_that_is_started_anew_tries_at_once_what_was_refused(tmp_path):
    scene = Scene(path=tmp_path / "h.sqlite")
    scene.engine.failures = [failure("answered 401", retry=False) for _ in range(12)]
    scene.replay("persistent")
    for _ in range(11):
        scene.after(300.0)
    scene.clock.now += 1.0
    scene.restart()
    assert scene.isolated == ["Ascend:3"]


def test_a_dropped_verdict_is_not_tried_again_and_its_strikes_count_no_more():
    scene = Scene()
    scene.raises(1)
    scene.engine.failures = [failure("no such node", retry=False)]
    scene.replay("persistent")
    assert drop_verdict(scene.handler.store, 1, scene.clock.now)
    assert not drop_verdict(scene.handler.store, 1, scene.clock.now)
    assert scene.after(HOUR) == []
    assert (scene.published, len(scene.engine.calls)) == ([], 1)
    (standing,) = device_standings(scene.handler.store, scene.policy, scene.clock.now)
    assert (standing.state, standing.strikes, standing.reason) == ("in use", 0, "its verdict was dropped by hand")
    assert scene.replay("persistent", 2).action == "isolated"
    assert not drop_verdict(scene.handler.store, 1, scene.clock.now)  # what is out is given back by the engine


def test_a_verdict_that_is_dropped_while_the_engine_isolates_is_undone(tmp_path):
    scene = Scene(path=tmp_path / "h.sqlite")
    isolate = scene.engine.isolate

    def slow(*call):
        isolate(*call)
        other = Store(scene.path)
        assert drop_verdict(other, 1, scene.clock.now)
        other.close()

    scene.engine.isolate = slow
    scene.replay("persistent")
    assert scene.after(1.0) == ["released"]
    assert (scene.isolated, [told.kind for told in scene.published]) == ([], ["isolation", "recovery"])


def test_a_new_fault_ends_a_release_that_the_engine_refuses():
    scene = breaker_scene(1)
    scene.engine.failures = [failure("no right to", retry=False)]
    assert scene.after(48 * HOUR) == ["failed"]
    scene.clock.now += 1.0
    assert scene.replay("persistent", 9, device="Ascend:0").action == "merged"
    scene.after(1.0)
    assert scene.isolated == ["Ascend:0"]
    assert [told.kind for told in scene.published] == ["isolation"]
    assert scene.after(47 * HOUR) == []


def test_a_release_that_fails_is_tried_again():
    scene = breaker_scene(1)
    scene.engine.failures = [failure()]
    assert scene.after(48 * HOUR) == ["releasing"]
    assert scene.after(1.0) == ["released"]


def test_an_event_that_cannot_be_published_is_published_later():
    scene = Scene()
    scene.handler._outbox._publish = lambda _: (_ for _ in ()).throw(OSError("disk full"))
    assert scene.replay("persistent").action == "isolated"
    (problem,) = scene.handler.tick()
    assert problem.reason.endswith("(isolation) can't be published: disk full; it is tried again.")
    scene.handler._outbox._publish = scene.published.append
    scene.after(601.0)
    assert [told.kind for told in scene.published] == ["isolation"]


# Dry run


def test_a_dry_run_decides_and_touches_nothing():
    scene = Scene(Policy(dry_run=True))
    assert scene.replay("persistent").action == "would-isolate"
    assert scene.replay("persistent", 2).action == "merged"
    for step in (1, 2, 3):
        scene.raises(step, "Ascend:4")
    assert scene.after(31.0) == ["would-isolate"]
    assert scene.replay("persistent", 9, "Ascend:5").action == "breaker"
    assert scene.after(48 * HOUR) == ["problem", "released", "released"]
    assert (scene.engine.calls, scene.published) == ([], [])


def test_what_a_dry_run_decided_is_not_done_by_the_next_start(tmp_path):
    scene = Scene(Policy(dry_run=True), tmp_path / "h.sqlite")
    scene.replay("persistent")
    scene.restart(Policy())
    assert scene.after(1.0) == []
    assert scene.engine.calls == []
    assert scene.replay("persistent", 2).action == "isolated"


# The policy


@pytest.mark.parametrize(
    ("name", "value"),
    [("strikes", 0), ("strikes", True), ("strikes", 1.5), ("many_devices", 1), ("max_devices", -1),
     ("max_percent", 101), ("max_percent", math.nan), ("window_seconds", -1.0), ("window_seconds", math.inf),
     ("settle_seconds", "30")],
)  # fmt: skip
def test_a_wrong_number_of_the_policy_is_named(name, value):
    with pytest.raises(ConfigError, match=f"^{name} has the value "):
        Policy(**{name: value})


# Whatever comes, in whatever order


DEVICES = [f"Ascend:{number}" for number in range(6)]
ANY_EVENT = st.builds(
    lambda device, step, kind, run, checkpoint, value, late: event(
        step,
        device=device,
        rank=int(device[-1]),
        run=run,
        checkpoint=checkpoint,
        value=value,
        time=START + late,
        **kind,
    ),
    st.sampled_from(DEVICES),
    st.integers(0, 4),
    st.sampled_from(
        [
            {},
            {},
            {},
            {"level": Level.WARNING},
            {"kind": "follower"},
            *(
                {"kind": "replay", "verdict": verdict}
                for verdict in ("persistent", "transient", "software", "undetermined")
            ),
        ]
    ),
    st.sampled_from(["job", "job+2", "other"]),
    st.sampled_from("ab"),
    st.sampled_from([1e7, math.inf]),
    st.floats(-100, 1000),
)


@given(st.lists(ANY_EVENT, max_size=40), st.randoms(use_true_random=False), st.integers(0, 3), st.booleans())
@settings(max_examples=150, deadline=None)
def test_no_order_and_no_repetition_isolates_more_devices_than_the_breaker_allows(events, random, most, ticks):
    scene = Scene(Policy(strikes=2, max_devices=most))
    delivered = events + events
    random.shuffle(delivered)
    for each in delivered:
        scene.clock.now += random.random() * 20
        scene.handler.handle(each)
        if ticks:
            scene.handler.tick()
    scene.after(61.0)
    assert len(scene.engine.calls) <= most
    assert len(scene.published) == len({told.id for told in scene.published}) == len(scene.engine.calls)


@given(st.lists(ANY_EVENT, max_size=30, unique_by=lambda each: each.id))
@settings(max_examples=100, deadline=None)
def test_delivering_everything_twice_gives_the_same_decisions(events):
    outcomes = []
    for deliveries in (1, 2):
        scene = Scene(Policy(strikes=2))
        decisions = []
        for each in events:
            scene.clock.now += 1.0
            decisions.append(scene.handler.handle(each))
            for _ in range(deliveries - 1):
                assert scene.handler.handle(each).action == "duplicate"
        scene.clock.now += 31.0
        outcomes.append((decisions, scene.handler.tick(), scene.isolated, scene.published))
    assert outcomes[0] == outcomes[1]


@given(st.lists(ANY_EVENT, max_size=25, unique_by=lambda each: each.id), st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_events_in_batches_lead_to_what_they_lead_to_one_by_one(events, size):
    isolated = []
    for batch in (1, size):
        scene = Scene(Policy(strikes=2, max_devices=1000, max_percent=100))
        for place in range(0, len(events), batch):
            scene.handler.handle_many(events[place : place + batch])
        scene.after(61.0)
        isolated.append(scene.isolated)
    assert isolated[0] == isolated[1]


def test_a_replaced_clock_and_a_replaced_event_are_what_the_helpers_say():
    assert replace(event(1), step=2, value=2e6 + 2, evidence="evidence/2") == event(2)


def test_a_device_that_another_engine_took_out_is_neither_taken_for_free_nor_released(tmp_path):
    scene = Scene(path=tmp_path / "h.sqlite")
    scene.replay("persistent")
    scene.engine = Engine()
    scene.engine.name = "other"
    scene.restart()
    assert scene.after(601.0) == []
    assert scene.after(48 * HOUR) == []
    assert scene.engine.calls == []


def test_the_two_hundred_checkpoints_behind_a_fault_make_no_two_hundred_decisions():
    scene = Scene(Policy(strikes=1))
    actions = [scene.raises(5, wait=0.0, checkpoint=f"c{number}") for number in range(200)]
    assert actions == ["waiting"] + ["strike"] * 199
    actions = [scene.raises(5, run="llama+2", checkpoint=f"c{number}", wait=0.0) for number in range(200)]
    assert actions == ["software"] + ["noted"] * 199


def test_a_release_that_is_asked_for_while_the_engine_isolates_is_done_afterwards(tmp_path):
    scene = Scene(path=tmp_path / "h.sqlite")
    isolate = scene.engine.isolate

    def slow(*call):
        isolate(*call)
        other = Store(scene.path)
        assert ask_release(other, 1, scene.clock.now) == "isolating"
        other.close()

    scene.engine.isolate = slow
    assert scene.replay("persistent").action == "isolated"
    assert scene.after(1.0) == ["released"]
    assert scene.isolated == []
    assert [told.kind for told in scene.published] == ["isolation", "recovery"]


def test_an_isolation_that_is_given_up_before_it_was_done_is_told_to_nobody(tmp_path):
    scene = Scene(path=tmp_path / "h.sqlite")
    scene.engine.failures = [failure()]
    scene.replay("persistent")
    ask_release(scene.handler.store, 1, scene.clock.now)
    assert scene.after(1.0) == ["released"]
    assert (scene.published, scene.isolated) == ([], [])


def test_a_release_that_is_refused_is_said_once_and_tried_again():
    scene = breaker_scene(1)
    scene.engine.failures = [failure("no right to", retry=False) for _ in range(5)]
    assert scene.after(48 * HOUR) == ["failed"]
    assert [scene.after(50.0) for _ in range(5)] == [["releasing"]] * 4 + [["released"]]
    assert [told.kind for told in scene.published] == ["isolation", "recovery"]


# Stress tests


def stress(scene, *, failed, device="Ascend:3", **changes):
    """A stress test that ends now; returns the decision about it."""
    level = Level.ERROR if failed else Level.NORMAL
    fields = {"time": scene.clock.now, "kind": "stress", "level": level, "key": str(scene.clock.now), "checkpoint": ""}
    return scene.handler.handle(event(0, device=device, **{**fields, **changes}))


def test_a_device_that_fails_its_stress_test_is_isolated_at_once():
    scene = Scene()
    assert stress(scene, failed=True).action == "isolated"
    assert scene.isolated == ["Ascend:3"]
    (told,) = scene.published
    assert (told.kind, told.verdict) == ("isolation", "persistent")
    assert (
        told.reason == "Ascend:3 on node7: it computed wrongly in a stress test, so it is isolated by the isolator set."
    )


def test_a_device_that_passes_its_stress_test_has_no_strikes_from_before():
    scene = Scene()
    assert [scene.raises(step) for step in (1, 2)] == ["strike", "strike"]
    scene.clock.now += 1.0
    decision = stress(scene, failed=False)
    assert (decision.action, decision.case) == ("cleared", 0)
    assert decision.reason == "Ascend:3 on node7: it made no mistake in a stress test, its strikes count no more."
    assert [scene.raises(step) for step in (3, 4)] == ["strike", "strike"]
    assert scene.raises(5) == "waiting"
    assert scene.after(31.0) == ["isolated"]


def test_strikes_of_other_devices_and_from_after_the_stress_test_still_count():
    scene = Scene()
    began = scene.clock.now
    for step in (1, 2):
        scene.raises(step)
        scene.raises(10 + step, device="Ascend:5")
    assert stress(scene, failed=False, time=began + 150.0).action == "cleared"  # after the first, before the second
    standings = {each.device: each for each in device_standings(scene.handler.store, scene.policy, scene.clock.now)}
    assert [standings[name].strikes for name in ("Ascend:3", "Ascend:5")] == [1, 2]
    assert (standings["Ascend:3"].tested, standings["Ascend:3"].sound) == (began + 150.0, True)
    assert (standings["Ascend:5"].tested, standings["Ascend:5"].sound) == (0.0, False)


def test_a_device_that_somebody_gave_back_has_no_strikes_from_before():
    scene = Scene()
    for step in (1, 2):
        scene.raises(step)
    told = event(2, kind="recovery", level=Level.NORMAL, time=scene.clock.now)
    assert scene.handler.handle(told).reason.endswith("it was given back, its strikes up to then count no more.")
    assert scene.raises(3) == "strike"
    assert device_standings(scene.handler.store, scene.policy, scene.clock.now)[0].strikes == 1


def test_a_recovery_with_a_clock_that_went_ahead_hides_no_later_strike():
    scene = Scene()
    scene.handler.handle(event(2, kind="recovery", level=Level.NORMAL, time=scene.clock.now + 1e6))
    assert [scene.raises(step) for step in (1, 2, 3)] == ["strike", "strike", "waiting"]


def test_a_passed_stress_test_gives_no_isolated_device_back():
    scene = Scene()
    scene.replay("persistent")
    decision = stress(scene, failed=False)
    assert (decision.action, decision.case) == ("cleared", 1)
    assert decision.reason.endswith("its strikes count no more, but it stays out: its case is isolated.")
    scene.after(3600.0)
    assert scene.isolated == ["Ascend:3"]


def test_the_verdict_of_a_replay_from_before_a_passed_stress_test_comes_too_late():
    scene = Scene()
    stress(scene, failed=False)
    assert scene.replay("persistent", time=scene.clock.now - 10.0).action == "stale"
    assert scene.replay("persistent", step=2, time=scene.clock.now + 10.0).action == "isolated"


def test_a_failed_stress_test_from_before_the_first_start_isolates_nobody_and_a_double_is_one():
    scene = Scene()
    assert stress(scene, failed=True, time=START - HOUR).action == "stale"
    assert stress(scene, failed=True, time=START - HOUR).action == "duplicate"
    (standing,) = device_standings(scene.handler.store, scene.policy, scene.clock.now)
    assert (standing.verdicts["persistent"], standing.sound, standing.state) == (1, False, "in use")


def test_the_circuit_breaker_holds_for_stress_tests_too():
    scene = Scene()
    actions = [stress(scene, failed=True, device=f"Ascend:{number}").action for number in range(3)]
    assert actions == ["isolated", "isolated", "breaker"]


def test_a_stress_test_that_knows_no_rank_leaves_the_known_one():
    scene = Scene()
    scene.raises(1)
    assert stress(scene, failed=True, rank=-1).action == "isolated"
    assert scene.engine.calls[0][1] == Device("node7", "Ascend:3", 3)


@pytest.mark.parametrize("failed", [True, False])
def test_a_stress_test_without_a_device_is_only_noted(failed):
    assert stress(Scene(), failed=failed, device="unknown").action == "noted"


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


def test_a_clock_that_jumps_ahead_gives_no_device_back():
    uptime = Uptime()
    scene = Scene(uptime=uptime)
    scene.replay("persistent")
    assert uptime.pass_by(scene, 24 * HOUR) == []
    assert scene.after(72 * HOUR) == []  # told, and not passed
    assert uptime.pass_by(scene, 23.9 * HOUR) == []
    assert uptime.pass_by(scene, 0.2 * HOUR) == ["released"]


def test_a_clock_that_runs_too_quickly_gives_no_device_back():
    uptime = Uptime()
    scene = Scene(uptime=uptime)
    scene.replay("persistent")
    for _ in range(24 * 60):
        uptime.seconds += 60.0
        assert scene.after(300.0) == []


def test_a_clock_that_jumps_and_is_put_right_costs_a_device_nothing():
    uptime = Uptime()
    scene = Scene(uptime=uptime)
    scene.replay("persistent")
    for jump in (72 * HOUR, -72 * HOUR):
        assert scene.after(jump) == []
        uptime.pass_by(scene, HOUR)
    assert uptime.pass_by(scene, 45.9 * HOUR) == []
    assert uptime.pass_by(scene, 0.2 * HOUR) == ["released"]


def test_time_with_the_machine_off_is_not_seen_and_time_with_the_handler_off_is(tmp_path):
    uptime = Uptime()
    scene = Scene(path=tmp_path / "h.sqlite", uptime=uptime)
    scene.replay("persistent")
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
    assert [scene.replay("persistent", device=f"Ascend:{n}").action for n in (1, 2)] == ["isolated", "breaker"]
    assert scene.after(72 * HOUR) == []
    assert scene.replay("persistent", device="Ascend:3").action == "breaker"
    assert uptime.pass_by(scene, 24.1 * HOUR) == ["problem"]


# Every decision in words


def said(decision):
    return decision.action, decision.reason


WHO = "Ascend:3 on node7: "


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"level": Level.WARNING}, "a second-level anomaly is no strike"),
        ({"kind": "follower"}, "a follower names nobody"),
        ({"kind": "problem"}, "a problem of the detector says nothing about a device"),
        ({"kind": "replay"}, "a replay without a verdict says nothing"),
        ({"kind": "isolation"}, "that it was taken out is noted; who holds it out is asked of the engine"),
        ({"kind": "recovery"}, "it was given back, its strikes up to then count no more"),
        ({"kind": "replay", "verdict": "undetermined"}, "the replay found nothing out, the strike stays as it is"),
        ({"time": START - 1e6}, "it is too old to be a reason to act, it is only recorded"),
        (
            {"kind": "replay", "verdict": "transient", "time": START - 1e6},
            "its verdict transient is too old to be a reason to act",
        ),
        (
            {"kind": "replay", "verdict": "persistent", "time": START - 1e6},
            "its verdict persistent is too old to be a reason to act",
        ),
        ({}, "strike 1 of 3 within 480 minutes"),
    ],
)  # fmt: skip
def test_what_one_event_leads_to_in_words(changes, sentence):
    scene = Scene()
    decision = scene.handler.handle(event(**changes))
    assert decision.reason == f"{WHO}{sentence}."
    assert (decision.device, decision.case) == (Device("node7", "Ascend:3", 3), 0)
    assert said(scene.handler.handle(event(**changes))) == ("duplicate", f"{WHO}the event was taken in before.")


@pytest.mark.parametrize("kind", [{}, {"kind": "replay", "verdict": "persistent"}, {"kind": "stress"}])
def test_what_names_no_device_is_told_by_the_id_of_the_event(kind):
    nameless = event(device="unknown", **kind)
    decision = Scene().handler.handle(nameless)
    assert said(decision) == ("noted", f"event {nameless.id}: it names no device.")
    assert (decision.device, decision.event_id) == (None, nameless.id)


def test_the_verdict_in_the_event_of_an_isolation_is_no_verdict_of_a_replay():
    scene = Scene()
    assert scene.handler.handle(event(kind="isolation", verdict="persistent")).action == "noted"
    assert scene.isolated == []


def test_what_follows_from_strikes_in_words():
    scene = Scene()
    scene.raises(1)
    again = event(1, checkpoint="b", time=scene.clock.now)
    assert said(scene.handler.handle(again)) == ("strike", f"{WHO}it belongs to the strike of step 1.")
    scene.raises(2)
    scene.clock.now += 100.0
    assert said(scene.handler.handle(event(3, time=scene.clock.now))) == (
        "waiting",
        f"{WHO}it has 3 strikes of 3, and is isolated unless many devices of job llama raise within 30 s.",
    )
    scene.after(31.0)
    merged = scene.handler.handle(event(4, time=scene.clock.now))
    assert said(merged) == ("merged", f"{WHO}it belongs to its case, which is isolated.")
    assert merged.case == 1


def test_one_strike_is_told_as_one():
    scene = Scene(Policy(strikes=1, settle_seconds=10.0))
    assert "it has 1 strike of 1, and is isolated unless" in scene.handler.handle(event()).reason
    (isolated,) = scene.handler.tick(scene.clock.now + 11.0)
    assert isolated.reason == f"{WHO}it has 1 strike within 480 minutes, so it is isolated by the isolator set."


def test_software_in_words():
    scene = Scene()
    scene.raises(1)
    scene.raises(1, "Ascend:4", wait=0.0)
    assert said(scene.replay("software", 1)) == (
        "software",
        f"{WHO}the replay of step 1 of llama found software or data: 1 more strike of this step revoked, nobody is "
        "isolated for it.",
    )
    scene.clock.now += 100.0
    late = event(1, device="Ascend:5", run="llama+2", time=scene.clock.now)
    assert said(scene.handler.handle(late)) == (
        "noted", "Ascend:5 on node7: step 1 of job llama is known to be software or data, no strike."
    )  # fmt: skip


def test_a_burst_in_words():
    scene = Scene()
    for number in (1, 2):
        scene.raises(1, f"Ascend:{number}", wait=0.0)
    third, fourth = (event(1, device=f"Ascend:{number}", time=scene.clock.now) for number in (3, 4))
    assert said(scene.handler.handle(third)) == (
        "software",
        f"{WHO}3 devices of job llama raised within 30 s: software or data, their strikes are revoked and nobody is "
        "isolated for them unless a replay finds hardware.",
    )
    assert said(scene.handler.handle(fourth)) == (
        "strike",
        "Ascend:4 on node7: it is one more of the many devices of job llama at once, the strike is revoked.",
    )


def test_a_dry_run_in_words():
    scene = Scene(Policy(dry_run=True))
    decision = scene.replay("persistent", 7)
    assert said(decision) == (
        "would-isolate",
        f"{WHO}the replay of step 7 of llama found persistent hardware, so it would be isolated, were this no dry run.",
    )
    assert said(scene.replay("persistent", 8)) == ("merged", f"{WHO}it belongs to its case, which is dry.")
    assert scene.handler.store.db.execute("SELECT state, verdict, isolator FROM cases").fetchall() == [
        ("dry", "persistent", "set")
    ]


def test_a_replay_of_an_unknown_step_is_told_by_its_run():
    decision = Scene(Policy(dry_run=True)).handler.handle(event(0, kind="replay", verdict="persistent"))
    assert decision.reason.startswith(f"{WHO}the replay of llama found persistent hardware, so")


def test_stress_tests_in_words():
    scene = Scene()
    assert said(scene.handler.handle(event(0, kind="stress", level=Level.NORMAL))) == (
        "cleared", f"{WHO}it made no mistake in a stress test, its strikes count no more."
    )  # fmt: skip
    scene.clock.now += 10.0
    failed = scene.handler.handle(event(0, kind="stress", time=scene.clock.now, key="2"))
    assert failed.reason == f"{WHO}it computed wrongly in a stress test, so it is isolated by the isolator set."
    passed = event(0, kind="stress", level=Level.NORMAL, time=scene.clock.now, key="3")
    decision = scene.handler.handle(passed)
    assert said(decision) == (
        "cleared",
        f"{WHO}it made no mistake in a stress test, its strikes count no more, but it stays out: its case is isolated.",
    )
    assert decision.case == 1


def test_a_verdict_of_the_moment_of_a_passed_stress_test_comes_too_late():
    scene = Scene()
    scene.handler.handle(event(0, kind="stress", level=Level.NORMAL))
    assert scene.replay("persistent", 1, time=START).action == "stale"
    assert scene.replay("persistent", 2, time=START + 0.1).action == "isolated"


def test_what_is_intended_is_remembered_in_words():
    scene = Scene()
    scene.replay("persistent", 7)
    reasons = [reason for (reason,) in scene.handler.store.db.execute("SELECT reason FROM decision ORDER BY n")]
    why = f"{WHO}the replay of step 7 of llama found persistent hardware, so "
    assert reasons == [f"{why}the isolator set is to isolate it.", f"{why}it is isolated by the isolator set."]


def test_numbers_out_of_every_range_are_noted_and_stop_nothing():
    scene = Scene()
    decision = scene.handler.handle(event(2**70))
    assert said(decision) == ("noted", f"{WHO}its numbers are out of every range.")
    assert scene.raises(1) == "strike"
