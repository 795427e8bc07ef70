"""The monitor: one rule per checkpoint, events in the order of the backward pass, and trouble that stays harmless."""

import math
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd import Config, Level, fault_code
from asd.diagnosis.attribution import Attribution, Seen
from asd.diagnosis.flow import attribute
from asd.judge.monitor import Monitor
from asd.origin import Origin
from asd.rules import RULES, make_rule
from asd.rules.reading import AVERAGED, Reading

ORIGIN = Origin("run1", 3, "node7", "CPU:0")
LIMIT = 1_000_000.0


def monitor(*sinks, config=None, rank=3, **options):
    config, origin = config or Config(protection="document", enable=1), replace(ORIGIN, rank=rank)
    return Monitor(config, origin, sinks, clock=lambda: 5.0, **options)


def reading(checkpoint="a", value=1.0, order=0):
    return Reading(checkpoint, value, order)


def judged(monitor, step, *readings, **options):
    events = monitor.judge(step, readings, **options).events
    return [(event.checkpoint, event.level.name, event.value) for event in events]


def test_each_checkpoint_has_a_rule_of_its_own():
    config = Config(protection="document", enable=1, rule="silent_check_v3", upper=(100, 10))
    watch = monitor(config=config)
    for step in range(1, 6):
        assert judged(watch, step, reading("small", 1.0), reading("large", 1000.0)) == []
    assert judged(watch, 6, reading("small", 1000.0), reading("large", 1000.0)) == [("small", "ERROR", 1e6)]
    assert watch.judges.limit("small") == pytest.approx(math.sqrt(100))
    assert watch.judges.limit("large") == pytest.approx(math.sqrt(100 * 1e6))


def test_events_follow_the_backward_pass_and_the_first_error_is_the_fatal_one():
    places = ("norm_out", 2e4), ("fine", 1.0), ("block.1", 5e6), ("block.0", 6e6), ("embedding", 9e9)
    readings = [reading(name, value, order) for order, (name, value) in enumerate(places)]
    outcome = monitor().judge(7, readings[::-1])
    assert [event.checkpoint for event in outcome.events] == ["norm_out", "block.1", "block.0", "embedding"]
    assert outcome.events[0].level is Level.WARNING
    assert outcome.fatal is outcome.events[1]


@given(raw=st.floats(0, 2.0**127, width=32), scale=st.floats(1e-3, 1e9))
def test_a_squared_maximum_is_divided_before_it_is_squared_as_the_gate_does(raw, scale):
    watch = monitor(config=Config(protection="document", enable=1, rule="silent_check_v3"))
    watch.judge(1, [reading("a", raw)], loss_scale=scale)
    ((_, value, _, _),) = watch.history["a"]
    assert value == (raw / scale) * (raw / scale)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("norm", [math.inf, math.nan])
def test_a_gradient_that_is_not_finite_is_an_error_for_every_rule(rule, norm):
    watch = monitor(config=Config(protection="document", enable=1, rule=rule))
    fatal = watch.judge(1, [reading("a", norm)]).fatal
    assert repr(fatal.value) == repr(norm)
    assert fatal.reason.removeprefix("gradient: ") == "not finite"


def test_an_overflow_under_a_dynamic_loss_scale_is_a_warning_and_not_learned():
    watch = monitor()
    watch.judge(1, [reading("a", 1.0)], loss_scale=1024)
    before = watch.state()["checkpoints"]
    outcome = watch.judge(2, [reading("a", math.inf)], loss_scale=1024, overflow_expected=True)
    assert (outcome.fatal, outcome.events[0].level) == (None, Level.WARNING)
    assert watch.state()["checkpoints"] == before
    assert watch.judge(3, [reading("a", 2e9)], loss_scale=1024.0, overflow_expected=True).fatal is not None


def test_a_sink_that_raises_is_counted_and_the_others_still_get_every_event_and_are_told_once():
    def broken(event):
        raise OSError(28, "No space left on device", "events.jsonl")

    before, after = [], []
    watch = monitor(before.append, broken, after.append)
    outcome = watch.judge(1, [reading("a", 2e6), reading("b", 2e6, order=1)])
    for others in (before, after):
        first, problem, second = others
        assert [first, second] == outcome.events
        assert all(word in problem.reason for word in ("test_a_sink_that_raises_", "[Errno 28] ", "'events.jsonl'"))
    assert watch.judge(2, [reading("a", 2e6)]).events == before[-1:] == after[-1:]
    assert watch.status.problems == 4  # as many events, the word about it among them, that the broken sink did not get


class Keeper:
    """A sink that has everything a sink may have."""

    def __init__(self, place="somewhere"):
        self.where = place
        self.calls = []

    def __call__(self, event):
        self.calls.append(("event", event.checkpoint))

    def after_step(self, monitor, events):
        self.calls.append(("step", monitor.status.active, [event.checkpoint for event in events]))

    def place(self, step):
        self.calls.append(("place", step))
        return self.where


def test_a_sink_is_told_of_the_beginning_of_each_step_and_of_the_end():
    keeper = Keeper()
    watch = monitor(keeper)
    watch.begin()
    watch.judge(1, [reading("a", 1.0)])
    watch.judge(2, [reading("a", 2e6)])
    watch.end()
    step = ("step", True, [])
    assert keeper.calls == [step, step, ("place", 2), ("event", "a"), ("step", True, ["a"]), ("step", False, [])]


def test_a_first_level_event_names_its_evidence_whatever_sinks_have_no_place_or_raise():
    class Broken(Keeper):
        def place(self, step):
            raise OSError(28, "No space left on device")

    watch = monitor(Keeper(place=""), Broken(), Keeper())
    second, first = watch.judge(7, [reading("a", 2e4), reading("b", 2e6, order=1)]).events
    assert (second.evidence, first.evidence) == ("", "somewhere")
    assert (watch.status.problems, watch.status.dropped) == (1, {"Broken": 1})


def test_the_status_counts_what_was_judged():
    watch = monitor()
    watch.judge(5, [reading("a", 1e3), reading("b", 2e6, order=1)], refused=True)
    watch.judge(6, [reading("a", math.inf), reading("c", 2e4, order=1)])
    status = watch.status
    assert (status.step, status.steps, status.checks, status.refused, status.non_finite) == (6, 2, 4, 1, 1)
    assert status.anomalies == {"first": 2, "second": 1}
    assert status.checkpoints == {"a": (math.inf, LIMIT), "b": (2e6, LIMIT), "c": (2e4, LIMIT)}
    assert status.last_check == 5.0


def test_only_an_interrupt_gets_past_the_sinks():
    def interrupted(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        monitor(interrupted).judge(1, [reading("a", 2e6)])


@pytest.mark.parametrize(("enable", "expected"), [(1, []), (2, []), (3, [(1, "a", 1.0), (1, "b", 2e6)])])
def test_every_value_goes_to_the_value_sink_with_level_3_only(enable, expected):
    seen = []
    watch = monitor(
        config=Config(protection="document", enable=enable),
        value_sink=lambda step, name, verdict: seen.append((step, name, verdict.value)),
    )
    watch.judge(1, [reading("a", 1.0), reading("b", 2e6, order=1)])
    assert seen == expected


def test_the_history_is_bounded_per_checkpoint():
    watch = monitor(history=3)
    for step in range(1, 11):
        watch.judge(step, [reading("a", float(step)), reading("b", 2e6)])
    assert list(watch.history["a"]) == [(step, float(step), LIMIT, Level.NORMAL) for step in (8, 9, 10)]
    assert list(watch.history["b"]) == [(step, 2e6, LIMIT, Level.ERROR) for step in (8, 9, 10)]
    assert (watch.status.checks, watch.step) == (20, 10)


def test_a_problem_is_counted_and_belongs_to_the_step_being_made():
    events = []
    watch = monitor(events.append)
    watch.judge(4, [reading()])
    event = watch.problem("the state can't be written", "a")
    assert events == [event]
    assert (event.kind, event.level, event.step, event.checkpoint) == ("problem", Level.NORMAL, 4, "a")
    assert (event.refused, event.reason, watch.status.problems) == (False, "the state can't be written", 1)
    assert not any(fault_code.decode(event.code))  # that could have a healthy device isolated
    assert watch.problem("another", "a").id != event.id == watch.problem("the state can't be written", "a").id
    assert fault_code.CHECK_FAIL not in event.sentence() + event.to_json()


@pytest.mark.parametrize("action", ["log", "skip", "stop"])
@pytest.mark.parametrize("rule", sorted({*RULES} - {"adaptive"}))
def test_a_rule_learns_an_applied_error_but_not_a_refused_one(rule, action):
    watch = monitor(config=Config(protection="document", enable=1, rule=rule, on_anomaly=action))
    twin = make_rule(rule, upper=(1000000, 10000), sigma=(100000, 5000), learn_errors=action == "log")
    for step, value in enumerate([1.0, 1.0, math.inf, 1.0, 1.0], 1):
        watch.judge(step, [reading("a", value)])
        twin.update(value)
    assert repr(watch.state()["checkpoints"]["a"]) == repr(twin.state())


def attributed(watch, step, others, *readings):
    """What the monitor of rank 3 makes of a step in which the other ranks saw `others`."""
    ranks = {3: watch.seen(readings), **others}
    return watch.judge(step, readings, refused=True, attribution=attribute(ranks))


def test_a_rank_that_was_dragged_along_becomes_a_follower_that_names_the_origin():
    watch = monitor()
    loud = {"a": Seen(0, 1e12, broken=True), "b": Seen(1, 1e12, broken=True)}
    calm = {"a": Seen(0, 1.0, broken=False), "b": Seen(1, 1.0, broken=False)}
    outcome = attributed(watch, 1, {0: loud, 1: calm}, reading("a", 1.0), reading("b", 2e6, order=1))
    (event,) = outcome.events
    assert (event.kind, event.level, event.checkpoint) == ("follower", Level.ERROR, "b")
    assert "; rank 0 broke its limit at a;" in event.reason
    assert outcome.fatal is event  # all ranks end together
    assert watch.status.anomalies == {"first": 0, "second": 0}


def averaged(value, order=5):
    return reading("averaged.a", value, order=order)._replace(kind=AVERAGED)


def test_a_mean_over_the_ranks_blames_the_rank_whose_own_value_broke_a_limit_and_no_other():
    detectors = Config(protection="document", enable=1, rule="adaptive", upper=(1000, 100))
    for rank, own, kinds in ((3, 1.0, ["follower"]), (3, 2e6, ["anomaly", "anomaly"])):
        watch = monitor(config=detectors)
        taught = [[reading("a", 1.0), averaged(1.0)] for _ in range(9)]
        for step, readings in enumerate(taught, 1):
            assert watch.judge(step, readings).events == []
        other = {"a": Seen(0, 1e12, broken=own == 1.0)}
        outcome = attributed(watch, 10, {0: other}, reading("a", own), averaged(1e9))
        errors = [event for event in outcome.events if event.level is Level.ERROR]
        assert ([event.kind for event in errors], {event.rank for event in errors}) == (kinds, {rank})
        assert errors[-1].checkpoint == "averaged.a"


def test_a_mean_that_is_bad_on_one_rank_only_is_blamed_on_that_one():
    calm, loud = {"averaged.a": Seen(5, 1.0, broken=False)}, {"averaged.a": Seen(5, 1e9, broken=True)}
    (event,) = bad_mean(3, attribution=attribute({0: calm, 1: calm, 3: loud}))
    assert (event.kind, event.rank) == ("anomaly", 3)


ALIKE, SOME = attribute({0: {}, 1: {}}), Attribution(None, "", (1, 3), "some ranks", shared=True)
NONE = "all ranks have the same mean"


@pytest.mark.parametrize(
    ("read", "attribution", "first", "words"),
    [(averaged, ALIKE, 0, NONE), (averaged, SOME, 1, "some ranks"), (partial(reading, "a"), SOME, 1, "some ranks")],
    ids=["the mean of all", "the mean of some", "the own value of some"],
)
def test_what_may_be_of_any_of_several_ranks_names_no_device_and_the_first_tells_of_it(read, attribution, first, words):
    for rank, kind, named in ((first, "anomaly", (-1, "unknown")), (3, "follower", (3, "CPU:0"))):
        (event,) = bad_mean(rank, read, attribution=attribution)
        assert (event.level, event.kind, event.rank, event.device) == (Level.ERROR, kind, *named)
        assert f"; {words}" in event.reason


def test_a_mean_of_ranks_that_were_not_compared_names_no_device():
    (event,) = bad_mean(3, attribution=None)
    assert (event.kind, event.rank, event.device) == ("anomaly", -1, "unknown")
    assert "ranks were not compared" in event.reason


def bad_mean(rank, read=averaged, **more):
    watch = monitor(config=Config(protection="document", enable=1, rule="adaptive"), rank=rank)
    for step in range(1, 10):
        watch.judge(step, [read(1.0)])
    return watch.judge(10, [read(1e9)], refused=True, **more).events


def test_the_origin_stays_an_anomaly_and_so_does_every_rank_when_none_stands_out():
    watch = monitor()
    calm = {"a": Seen(0, 1.0, broken=False)}
    (event,) = attributed(watch, 1, {0: calm, 1: calm}, reading("a", 2e6)).events
    assert (event.kind, event.reason.endswith("threshold 1000000")) == ("anomaly", True)
    loud = {"a": Seen(0, 2e6, broken=True)}
    (event,) = attributed(watch, 2, {0: loud, 1: loud}, reading("a", 2e6)).events
    assert (event.kind, "the data or the software" in event.reason) == ("anomaly", True)
    assert watch.status.anomalies == {"first": 2, "second": 0}


def test_what_the_ranks_tell_one_another_is_what_the_gate_compares():
    watch = monitor()
    seen = watch.seen([reading("a", 3e6, order=4), reading("b", math.nan)], loss_scale=4.0)
    assert seen["a"] == (4, 7.5e5, False)
    assert math.isnan(seen["b"].value)
    assert seen["b"].broken
    assert watch.status.checks == 0


@pytest.mark.parametrize(
    ("config", "healthy", "value", "limit", "reason"),
    [
        ({}, 1.0, 2e4, 1e4, "threshold 10000"),
        ({"rule": "silent_check_v3", "upper": (100, 10)}, 1.0, 5.0, 10.0, " 10 times "),
        ({"rule": "adaptive"}, 1e-2, 1.0, None, " 100 times "),
        ({"rule": "adaptive"}, 1e-2, 1e-4, 1e-2 / 2**1.26, " 1/100 "),
    ],
)
def test_an_event_of_the_second_level_tells_the_limit_of_that_level(config, healthy, value, limit, reason):
    watch = monitor(config=Config(protection="document", enable=1, **config))
    for step in range(1, 90):
        assert judged(watch, step, reading("a", healthy)) == []
    limit = watch.judges.second_limit("a") if limit is None else limit
    (event,) = watch.judge(90, [reading("a", value)]).events
    assert (event.level, reason in event.reason) == (Level.WARNING, True)
    assert event.limits == pytest.approx((limit,), rel=0.05)
    assert (event.value > event.limits[0]) is (value > healthy)


def test_a_warning_that_no_single_value_explains_has_no_limit():
    watch = monitor(config=Config(protection="document", enable=1, rule="adaptive"))
    for step in range(1, 120):
        judged(watch, step, reading("a", 1e-2))
    (event,) = watch.judge(120, [reading("a", 0.0)]).events
    assert (event.level, event.limits) == (Level.WARNING, ())
    overflow = reading("a", value=math.inf)
    (event,) = watch.judge(121, [overflow], loss_scale=2.0, overflow_expected=True).events
    assert (event.level, event.limits) == (Level.WARNING, ())
