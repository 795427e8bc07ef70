"""The store: survives, refuses what it can't use, stays small."""

import os
import sqlite3

import pytest

from asd import StateError
from asd.exporters.ledger import Ledger
from asd.handler import FaultHandler, NoIsolator, Policy, Store
from asd.handler.act.release import ask_release
from asd.handler.db.store import state_file
from asd.handler.device_record import device_records
from asd.handler.inputs.feed import LogFeed
from tests.asd.handler.scene import START, Engine, Scene
from tests.support.events import event_maker, growing

event = event_maker(run="llama", rank=3, device="Ascend:3", value=growing, time=START)


def persistent(step=1, **changes):
    return event(step, kind="replay", verdict="persistent", **changes)


def handler(path, published=None, clock=lambda: START, **more):
    store = Store(path)
    sink = [] if published is None else published
    return FaultHandler(store, Policy(), more.pop("engine", None) or NoIsolator(store), sink.append, clock, **more)


class Crash(BaseException):
    """What a kill looks like from inside."""


class Crashing(Engine):
    """Crashes before or after it has done something."""

    def __init__(self, before=False, after=False):
        super().__init__()
        self.before, self.after = before, after

    def isolate(self, *call):
        if self.before:
            raise Crash
        super().isolate(*call)
        if self.after:
            raise Crash

    def release(self, device):
        super().release(device)
        if self.after:
            raise Crash


@pytest.mark.parametrize(("when", "what"), [("before", "isolated"), ("after", "isolated"), ("after", "released")])
def test_what_was_cut_short_is_completed_by_the_next_start(tmp_path, when, what):
    engine, published = Crashing(), []
    first = handler(tmp_path / "h", published, engine=engine)
    if what == "released":
        first.handle(persistent())
        ask_release(first.store, 1, START)
    setattr(engine, when, True)
    with pytest.raises(Crash):
        first.tick() if what == "released" else first.handle(persistent())
    first.close()
    engine.before = engine.after = False
    second = handler(tmp_path / "h", published, engine=engine)
    assert [decision.action for decision in second.tick()] == [what]
    assert len(engine.calls) == 1 + (what == "released")
    assert [told.recovered_by for told in published] == ["", "person"][: len(engine.calls)]


def test_an_event_whose_publishing_was_cut_short_is_not_doubled(tmp_path):
    published = []

    def publish(told):
        published.append(told)
        raise Crash

    store = Store(tmp_path / "h")
    first = FaultHandler(store, Policy(), NoIsolator(store), publish, lambda: START)
    with pytest.raises(Crash):
        first.handle(persistent())
    first.close()
    handler(tmp_path / "h", published, already=lambda identity: identity in {told.id for told in published}).close()
    assert len(published) == 1
    handler(tmp_path / "h", published).close()
    assert len(published) == 1


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"SQLite format 3\0" + b"\7" * 8000, b"", b"S"])
def test_a_corrupt_file_is_named_and_left_as_it_is(tmp_path, content):
    path = tmp_path / "h.sqlite"
    handler(path).close()
    path.write_bytes(content)
    with pytest.raises(StateError, match=r"h\.sqlite is corrupt: "):
        Store(path)
    assert path.read_bytes() == content


def test_damage_in_the_middle_is_found(tmp_path):
    first = handler(tmp_path / "h")
    first.handle_many([event(step) for step in range(1, 100)])
    first.store.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    first.close()
    content = bytearray((tmp_path / "h").read_bytes())
    content[8192 : len(content) // 2] = b"\xff" * (len(content) // 2 - 8192)
    (tmp_path / "h").write_bytes(content)
    with pytest.raises(StateError, match="is corrupt"):
        Store(tmp_path / "h")


def test_what_is_older_than_any_window_is_forgotten(tmp_path):
    now = [START]
    first = handler(tmp_path / "h", clock=lambda: now[0])
    first.handle_many([event(step, time=START) for step in range(1, 50)])
    now[0] += Policy().strike_memory_seconds + 301.0
    first.tick()
    counts = {
        table: first.store.db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in ("seen", "strike", "sighting", "software")
    }
    assert counts == {"seen": 0, "strike": 0, "sighting": 0, "software": 0}
    assert first.handle(event(1, time=START)).action == "stale"  # though its id is forgotten


def test_the_strikes_of_one_host_are_bounded_in_bytes_and_push_out_none_of_another():
    scene = Scene()
    scene.tell(1, host="node8")
    scene.tell(7, device="Ascend:77")
    scene.after(31.0)
    scene.handler.handle_many(
        [event(1, device=f"Ascend:{number}", reason="x" * 2000, time=scene.clock.now) for number in range(1000)]
    )
    scene.after(301.0)
    sizes = dict(scene.rows("SELECT host, sum(length(event)) FROM strike JOIN device d ON d.n = device GROUP BY host"))
    assert 1_000_000 < sizes["node7"] <= 1 << 20
    assert scene.record("Ascend:77").strikes == 1  # it counts, and what many devices had at once does not
    assert sizes["node8"] > 0


def line(told):
    return told.to_json() + "\n"


def test_each_line_is_taken_in_exactly_once_over_restarts_and_rotation(tmp_path):
    log = tmp_path / "events-rank0.jsonl"
    log.write_text(line(event(1)) + "no event\n" + line(event(2)))
    first = handler(state_file(tmp_path))
    feed = LogFeed(first, [tmp_path])
    assert [decision.action for decision in feed.step()] == ["strike", "strike"]
    assert (feed.step(), feed.events, feed.bad_lines) == (None, 2, 1)
    assert len(feed.complaints) == 1
    first.close()
    log.rename(tmp_path / "events-rank0.jsonl.1")
    log.write_text(line(event(3)) + line(event(4))[:-9])
    second = handler(state_file(tmp_path))
    feed = LogFeed(second, [tmp_path])
    assert [decision.action for decision in feed.step()] == ["waiting"]
    assert feed.step() is None
    with log.open("a") as file:
        file.write(line(event(4))[-9:])
    assert [decision.action for decision in feed.step()] == ["waiting"]


@pytest.mark.parametrize("version", [99, 6])
def test_another_version_is_refused(tmp_path, version):
    Store(tmp_path / "h").close()
    with sqlite3.connect(tmp_path / "h") as db:
        db.execute(f"PRAGMA user_version = {version}")
    db.close()
    with pytest.raises(StateError, match=f"version {version}; "):
        Store(tmp_path / "h")


def test_links_are_not_followed(tmp_path):
    log, runs = tmp_path / "elsewhere" / "events-rank0.jsonl", tmp_path / "runs"
    for path in (log.parent, runs):
        path.mkdir()
    log.write_text(line(event(1)))
    (runs / "events-rank0.jsonl").symlink_to(log)
    feed = LogFeed(handler(tmp_path / "h"), [runs])
    assert feed.step() is None
    assert str(runs / "events-rank0.jsonl") in feed.complaints[0]


def test_a_lost_cursor_costs_nothing_but_time_for_events_count_once_also_after_a_restart(tmp_path):
    (tmp_path / "events-rank0.jsonl").write_text(line(event(1)))
    first = handler(state_file(tmp_path))
    LogFeed(first, [tmp_path]).step()
    with first.store.transaction():
        first.store.set_meta("cursor", '{"version": 77}')
    first.close()
    feed = LogFeed(handler(state_file(tmp_path)), [tmp_path])
    assert feed.cursor_problem
    assert [decision.action for decision in feed.step()] == ["duplicate"]


def test_lines_whose_batch_failed_are_read_again(tmp_path):
    (tmp_path / "events-rank0.jsonl").write_text(line(event(1)))
    first = handler(state_file(tmp_path))
    feed = LogFeed(first, [tmp_path])
    first.store.db.execute("CREATE TRIGGER full BEFORE INSERT ON strike BEGIN SELECT RAISE(ABORT, 'disk full'); END")
    with pytest.raises(StateError, match="disk full"):
        feed.step()
    assert first.store.db.execute("SELECT count(*) FROM device").fetchone() == (0,)
    first.store.db.execute("DROP TRIGGER full")
    assert [decision.action for decision in feed.step()] == ["strike"]


NO_TIME = [{"time": float(each)} for each in ("nan", "inf", "-inf")]


@pytest.mark.parametrize("wrong", [{"step": 1 << 70}, {"rank": 1 << 70}, *NO_TIME])
def test_an_event_without_a_time_or_with_a_number_beyond_every_range_is_refused_and_stops_nothing(tmp_path, wrong):
    first = handler(tmp_path / "h")
    decisions = first.handle_many([persistent(**wrong), event(**wrong), persistent(2)])
    assert [decision.action for decision in decisions] == ["noted", "noted", "isolated"]
    ledger = Ledger()
    ledger.add(event(**wrong))
    assert ledger.records(START) == {}


def test_a_database_that_is_gone_from_its_log_is_no_new_one(tmp_path):
    first = handler(tmp_path / "h")
    first.handle(persistent())
    (tmp_path / "h").unlink()
    with pytest.raises(StateError, match="is corrupt: .* -wal"):
        Store(tmp_path / "h")
    first.close()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", ".lock"])
def test_a_symbolic_link_in_the_place_of_a_file_of_the_handler_is_refused_and_not_followed(tmp_path, suffix):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path = tmp_path / "run" / "h.sqlite"
    if suffix:
        handler(path).close()
    path.parent.mkdir(exist_ok=True)
    path.with_name(f"h.sqlite{suffix}").unlink(missing_ok=True)
    path.with_name(f"h.sqlite{suffix}").symlink_to(victim)
    with pytest.raises(StateError, match=rf"h\.sqlite{suffix} .* symbolic link"):
        handler(path)
    assert victim.read_text() == "precious"


def test_a_pipe_in_the_place_of_the_lock_or_the_database_keeps_nobody_waiting(tmp_path):
    os.mkfifo(tmp_path / "h.lock")
    with pytest.raises(StateError, match=r"h\.lock .* no regular file"):
        handler(tmp_path / "h")
    os.mkfifo(tmp_path / "other")
    with pytest.raises(StateError, match=r"other .* no regular file"):
        handler(tmp_path / "other")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_another_user_says_was_given_back_keeps_its_strikes(tmp_path):
    told = line(event(1)) + line(event(2)) + line(event(2, kind="recovery", recovered_by="person"))
    strikes = []
    for user in (1001, 0):
        folder = tmp_path / str(user)
        folder.mkdir()
        log = folder / "events-rank0.jsonl"
        log.write_text(told)
        for path in (folder, log):
            os.chown(path, user, -1)
        first = handler(folder / "h")
        feed = LogFeed(first, [folder])
        feed.step()
        strikes.append(device_records(first.store, Policy(), START)[0].strikes)
        if user:
            assert (len(feed.complaints), feed.not_believed) == (1, 1)
    assert strikes == [2, 0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_log_that_a_stranger_left_in_the_folder_of_a_user_decides_nothing(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    logs = [folder / "events-rank3.jsonl", folder / "events-stress.jsonl"]
    logs[0].write_text(line(persistent()))
    logs[1].write_text(line(event(kind="stress", rank=4, device="Ascend:4")))
    os.chown(folder, 1001, -1)
    os.chown(logs[0], 1001, -1)
    os.chown(logs[1], 1002, -1)
    first = handler(tmp_path / "h")
    feed = LogFeed(first, [folder])
    assert [decision.action for decision in feed.step()] == ["isolated"]
    assert feed.step() is None
    (sentence,) = feed.complaints
    assert sentence.startswith(f"{logs[1]}: ")
    os.chown(logs[1], 1001, -1)
    assert [decision.device.device for decision in feed.step()] == ["Ascend:4"]
    os.chown(folder, 0, -1)  # as a volume
    os.chown(logs[1], 1002, -1)
    feed.step()
    assert feed.complaints == []


def test_a_retry_that_succeeds_while_other_events_come_is_told_by_the_next_tick():
    scene = Scene()
    scene.engine.failures = [OSError("no answer")]
    assert scene.replay("persistent").action == "isolating"
    assert scene.raises(9, "Ascend:4", wait=2.0) == "strike"
    assert [decision.action for decision in scene.handler.tick()] == ["isolated"]
