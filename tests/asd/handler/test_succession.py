"""Several handlers, each with a store of its own: one acts, the next goes on where it ended, no device twice."""

import base64
import json
import zlib
from random import Random

import pytest

from asd import Level, StateError
from asd.handler import FaultHandler, Policy, Store
from asd.handler.act.release import ask_release, drop_verdict, find_device, note_repair
from asd.handler.act.succession import adopt, record_of
from asd.handler.db.cases import Cases
from asd.handler.decide.breaker import reset_breaker
from tests.asd.handler.scene import HOUR, START, Clock, Engine, Nodes, event


class Seat:
    """Who acts, and what the one before has left; as a Lease, but in memory."""

    def __init__(self):
        self.holder, self.record = "", ""

    def of(self, name):
        return _Candidate(self, name)


class _Candidate:
    def __init__(self, seat, name):
        self._seat, self._name = seat, name

    holder = property(lambda self: self._seat.holder)
    record = property(lambda self: self._seat.record)
    acts = property(lambda self: self._seat.holder == self._name)

    def leave(self, record):
        if self.acts:
            self._seat.record = record

    def confirm(self, record):
        self.leave(record)
        return self.acts


class Two:
    """Two handlers and one engine."""

    def __init__(self, policy=None, engine=None):
        self.clock, self.engine, self.seat, self.policy = Clock(), engine or Engine(), Seat(), policy or Policy()
        self.published = {}
        self.handlers = {name: self.begin(name) for name in ("one", "two")}
        self.seat.holder = "one"
        self.tick()

    def begin(self, name):
        self.published[name] = []
        publish, seat = self.published[name].append, self.seat.of(name)
        return FaultHandler(Store(None), self.policy, self.engine, publish, self.clock, leadership=seat)

    def tick(self, seconds=1.0, *names):
        self.clock.now += seconds
        for name in names or self.handlers:
            self.handlers[name].tick()

    def tell(self, *events, to=("one", "two")):
        return [[each.action for each in self.handlers[name].handle_many(events)] for name in to]

    def verdict(self, device="Ascend:3", **changes):
        fields = {"device": device, "kind": "replay", "verdict": "persistent", "time": self.clock.now}
        return event(1, **{**fields, **changes})

    def take_over(self, name="two", *, anew=False):
        if anew:  # with an empty store
            self.handlers[name] = self.begin(name)
        self.seat.holder = name
        self.tick(1.0, name)

    def state(self, name, device="Ascend:3"):
        query = "SELECT state FROM cases JOIN device ON device.n = cases.device WHERE name = ? ORDER BY cases.n"
        return [state for (state,) in self.handlers[name].store.db.execute(query, (device,))]

    def number(self, name, device="Ascend:3"):
        return find_device(self.handlers[name].store, "node7", device)

    @property
    def isolations(self):
        return [call[1].device for call in self.engine.calls if call[0] == "isolate"]


@pytest.fixture
def two():
    return Two()


def test_the_one_that_stands_by_decides_the_same_and_asks_the_engine_nothing(two):
    assert two.tell(two.verdict(), to=("two", "one")) == [["isolating"], ["isolated"]]
    two.tick()
    assert (two.state("one"), two.state("two")) == (["isolated"], ["isolated"])  # as the other has left it
    assert two.isolations == ["Ascend:3"]
    assert [len(two.published[name]) for name in ("one", "two")] == [1, 0]


def test_who_takes_over_knows_that_a_node_was_gone():
    two = Two(engine=Nodes())
    assert two.tell(two.verdict(), to=("two", "one")) == [["isolating"], ["failed"]]
    two.tick()
    two.engine.made["node7"] = two.clock.now + 1.0
    two.clock.now += 10.0
    two.take_over()
    assert (two.state("two"), two.isolations) == (["dropped"], [])


def test_who_takes_over_finds_what_is_out_and_isolates_it_no_second_time(two):
    two.tell(two.verdict(), to=("two", "one"))
    two.seat.record = ""  # it was killed before it left anything
    two.take_over()
    assert two.isolations == ["Ascend:3"]
    assert two.state("two") == ["isolated"]
    assert [each.id for each in two.published["two"]] == [each.id for each in two.published["one"]]


def test_one_that_lost_its_seat_between_decision_and_deed_does_nothing(two):
    confirm = type(two.handlers["one"]._leadership).confirm

    def lose(candidate, record):
        two.seat.holder = "two"
        return confirm(candidate, record)

    two.handlers["one"]._leadership.confirm = lose.__get__(two.handlers["one"]._leadership)
    two.tell(two.verdict(), to=("one",))
    assert two.isolations == []
    assert two.published["one"] == []


def test_one_that_lost_its_seat_in_the_midst_of_several_deeds_ends_there(two):
    isolate = two.engine.isolate

    def once(*words):
        isolate(*words)
        two.seat.holder = "two"

    two.engine.isolate = once
    two.tell(two.verdict(), two.verdict("Ascend:4"), to=("one",))
    assert two.isolations == ["Ascend:3"]


def test_one_that_is_new_learns_from_the_agents_what_counted_before_it_began(two):
    told = []
    for step in (1, 2, 3):
        two.clock.now += 100
        told.append(event(step, time=two.clock.now))
    two.tell(*told[:2], to=("one",))
    two.tick(HOUR, "one")
    two.take_over("two", anew=True)
    two.tell(*told, to=("two",))
    two.tick(60.0, "two")
    assert two.isolations == ["Ascend:3"]


def test_a_device_that_a_person_gave_back_is_not_taken_out_again_by_the_next_one(two):
    verdict = two.verdict()
    two.tell(verdict)
    two.tick()
    ask_release(two.handlers["one"].store, two.number("one"), two.clock.now)
    two.tick()
    assert two.engine.ours == set()
    two.take_over()
    two.tick(HOUR, "two")
    two.take_over("three", anew=True)
    assert two.tell(verdict, to=("three",)) == [["stale"]]
    two.tick(HOUR, "three")
    assert two.isolations == ["Ascend:3"]


def test_a_release_that_was_asked_for_and_not_done_is_done_by_the_next_one(two):
    two.tell(two.verdict())
    two.tick()
    two.engine.failures = [RuntimeError("no answer")]
    ask_release(two.handlers["one"].store, two.number("one"), two.clock.now)
    two.tick(1.0, "one")
    assert two.engine.ours
    two.take_over()
    assert two.engine.ours == set()
    assert [each.kind for each in two.published["two"]] == ["isolation", "recovery"]


@pytest.mark.parametrize("serial", ["", "SN2"])
@pytest.mark.parametrize("heard", [True, False])
def test_a_repair_that_one_was_told_of_is_known_to_the_next_one(two, serial, heard):
    two.tell(two.verdict(serial="SN1"), to=("one", "two") if heard else ("one",))
    two.tick()
    store = two.handlers["one"].store
    assert note_repair(store, two.number("one"), serial, two.clock.now + 1.0)
    two.tick(31.0)
    two.take_over()
    two.tick(49 * HOUR, "two")
    assert two.engine.ours  # no time alone gives it back
    (case,) = Cases(two.handlers["two"].store).in_state("isolated")
    assert ("SN2" in case.reason, case.wants_test) == (bool(serial), True)
    passed = {"kind": "stress", "level": Level.NORMAL, "checkpoint": "", "serial": serial or "SN1"}
    two.tell(event(0, time=two.clock.now, **passed), to=("two",))
    two.tick(1.0, "two")
    assert two.engine.ours == set()
    assert two.isolations == ["Ascend:3"]


def test_a_verdict_that_a_person_dropped_stays_dropped(two):
    two.engine.failures = [RuntimeError("no answer")]
    two.tell(two.verdict())
    assert drop_verdict(two.handlers["one"].store, two.number("one"), two.clock.now)
    two.tick()
    two.take_over()
    two.tick(HOUR, "two")
    assert two.state("two") == ["dropped"]
    assert two.engine.ours == set()


@pytest.mark.parametrize(("forgiven", "isolations"), [(False, ["Ascend:3"]), (True, [])])
def test_strikes_of_the_one_before_count_for_the_next_one_unless_a_person_forgave_them(two, forgiven, isolations):
    for step in (1, 2):
        two.clock.now += 100
        assert two.tell(event(step, time=two.clock.now)) == [["strike"], ["strike"]]
    if forgiven:
        note_repair(two.handlers["one"].store, two.number("one"), "", two.clock.now)
    two.tick()
    two.take_over()
    two.clock.now += 100
    two.tell(event(3, time=two.clock.now), to=("two",))
    two.tick(60.0, "two")
    assert two.isolations == isolations


def test_the_circuit_breaker_counts_over_both(two):
    for number in range(2):
        two.tell(two.verdict(f"Ascend:{number}"))
        two.tick()
        ask_release(two.handlers["one"].store, two.number("one", f"Ascend:{number}"), two.clock.now)
        two.tick()
    two.take_over("two", anew=True)
    assert two.tell(two.verdict("Ascend:5"), to=("two",)) == [["breaker"]]
    assert two.isolations == ["Ascend:0", "Ascend:1"]


def test_what_an_open_breaker_refused_is_not_done_by_the_next_one_that_counted_less(two):
    two.handlers["two"].policy = None
    two.handlers["one"].know_nodes("agents", {"node7"})
    for number in range(2):
        two.tell(two.verdict(f"Ascend:{number}"), to=("one",))
    verdict = two.verdict("Ascend:5")
    two.handlers["two"] = two.begin("two")
    two.seat.record = ""
    assert two.tell(verdict) == [["breaker"], ["isolating"]]
    two.tick()
    two.take_over()
    assert two.isolations == ["Ascend:0", "Ascend:1"]
    assert two.state("two", "Ascend:5") == ["dropped"]


def test_a_breaker_that_a_person_has_reset_is_closed_for_the_next_one_and_old_events_stay_without_effect(two):
    for number in range(3):
        two.tell(two.verdict(f"Ascend:{number}"))
    old = two.verdict("Ascend:7")
    two.tick()
    with two.handlers["one"].store.transaction():
        reset_breaker(two.handlers["one"].store, two.clock.now)
    two.tick()
    two.take_over()
    assert two.tell(old, to=("two",)) == [["stale"]]
    assert two.tell(two.verdict("Ascend:6"), to=("two",)) == [["isolated"]]


@pytest.mark.parametrize("jump", [3 * 24 * HOUR, -3 * 24 * HOUR])
def test_the_clock_of_the_next_one_releases_nothing_before_its_time_was_seen(jump):
    two = Two(Policy(release_after_seconds=24 * HOUR))
    two.tell(two.verdict(), to=("one",))
    two.tick(HOUR, "one")
    two.handlers["two"] = two.begin("two")
    two.clock.now += jump  # that of the other machine
    two.tell(event(0, time=two.clock.now, kind="stress", level=Level.NORMAL, checkpoint=""), to=("two",))
    two.take_over()
    two.tick(22 * HOUR, "two")
    assert two.engine.ours
    two.tick(2 * HOUR, "two")
    assert not two.engine.ours


def test_what_is_left_is_the_same_text_for_the_same_and_adopting_it_twice_changes_nothing(two):
    two.tell(two.verdict(), event(4, device="Ascend:4", level=Level.ERROR, time=START))
    store = two.handlers["one"].store
    text = record_of(store, two.clock.now)
    for _ in range(2):
        with store.transaction():
            adopt(store, text, two.clock.now)
        assert record_of(store, two.clock.now) == text


def test_what_is_left_fits_into_a_lease_however_long_the_texts_are_and_has_the_last_cases():
    two, random = Two(Policy(max_percent=100)), Random(0)
    texts = [base64.b64encode(random.randbytes(1400)).decode() for _ in range(160)]
    pairs = enumerate(zip(texts[::2], texts[1::2], strict=True))
    two.tell(*(two.verdict(host=f"node{n}", reason=why, evidence=there) for n, (why, there) in pairs), to=("one",))
    text, store = record_of(two.handlers["one"].store, two.clock.now), Store(None)
    assert len(text) < 256 * 1024
    with store.transaction():
        adopt(store, text, two.clock.now)
    assert Cases(store).in_state("isolated")[-1].named.host == "node79"


def test_what_dry_runs_saw_is_no_reason_for_those_in_earnest_that_come_after():
    two = Two(Policy(dry_run=True))
    seen = two.verdict()
    two.tell(seen)
    two.tick(HOUR)
    two.policy = Policy()
    two.take_over("three", anew=True)
    assert two.tell(seen, to=("three",)) == [["stale"]]
    assert two.tell(two.verdict("Ascend:4"), to=("three",)) == [["isolated"]]
    assert two.isolations == ["Ascend:4"]


def test_what_is_out_is_known_again_after_a_dry_run_in_between(two):
    two.tell(two.verdict())
    two.tick()
    two.policy = Policy(dry_run=True)
    two.take_over("dry", anew=True)
    assert two.tell(two.verdict("Ascend:4"), to=("dry",)) == [["would-isolate"]]
    two.tick(HOUR, "dry")
    two.policy = Policy()
    two.take_over("three", anew=True)
    assert (two.state("three"), two.isolations) == (["isolated"], ["Ascend:3"])


def test_what_a_handler_of_the_version_before_has_left_is_taken_over(two):
    two.tell(two.verdict())
    two.tick()
    note_repair(two.handlers["one"].store, two.number("one"), "", two.clock.now)
    left = json.loads(zlib.decompress(base64.b64decode(record_of(two.handlers["one"].store, two.clock.now))))
    for _, case in left["cases"]:
        del case["cause"], case["event_id"], case["ending"], case["wants_test"]
        case["reason"] += "; it is given back after a stress test that it passes"
    two.seat.record = base64.b64encode(zlib.compress(json.dumps(left | {"form": 4}).encode())).decode()
    two.take_over("three", anew=True)
    (case,) = Cases(two.handlers["three"].store).in_state("isolated")
    assert (case.cause, case.wants_test, case.ending, two.isolations) == ("replay", True, "", ["Ascend:3"])


@pytest.mark.parametrize("text", ["x", "e30=", "eJyrrgUAAXUA+Q==", "eJw="])
def test_what_nobody_left_is_refused(text):
    store = Store(None)
    with store.transaction(), pytest.raises(StateError):
        adopt(store, text, START)
