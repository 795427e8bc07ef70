"""The journal of an agent: each event once, in order, for whoever asks with a cursor."""

import json
import resource
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from asd import Event, StateError
from asd.exporters.prometheus.agent import Agent
from asd.exporters.prometheus.event_journal import EventJournal
from asd.exporters.prometheus.node import NodeCollector, serve_node
from asd.exporters.run_files.event_log import EventLog
from asd.handler.inputs.cursor import MOST_ANSWER_BYTES
from asd.rundir.names import event_file
from tests.support.events import event_maker

event = event_maker(time=lambda step: 1e9 + step)


def steps(page):
    return [Event.from_json(text).step for text in page.events]


@pytest.fixture
def journal(tmp_path):
    made = EventJournal(tmp_path / "journal.sqlite")
    yield made
    made.close()


def test_a_cursor_of_another_journal_says_nothing(journal, tmp_path):
    other = EventJournal(tmp_path / "other.sqlite")
    other.add([event(1), event(2), event(3)])
    journal.add([event(4)])
    strange = other.page((), 10).cursor
    assert steps(journal.page((strange,), 10)) == [4]
    known = journal.page((), 10).cursor
    assert steps(journal.page((strange, known), 10)) == []
    other.close()


def test_a_journal_that_was_put_back_to_an_older_state_is_read_anew(journal):
    journal.add([event(1)])
    journal.close()
    older = journal.path.read_bytes()
    later = EventJournal(journal.path)
    later.add([event(2), event(3)])
    cursor = later.page((), 10).cursor
    later.close()
    journal.path.write_bytes(older)
    back = EventJournal(journal.path)
    back.add([event(4)])
    assert steps(back.page((cursor,), 10)) == [1, 4]
    back.close()


def test_the_oldest_of_too_many_are_dropped_and_who_has_not_seen_them_is_told_how_many(tmp_path):
    size = len(event(1000).to_json())
    journal = EventJournal(tmp_path / "journal.sqlite", most_bytes=10 * size)
    journal.add([event(1)])
    cursor = journal.page((), 10).cursor
    journal.add(event(step) for step in range(2, 1100))
    page = journal.page((cursor,), 1000)
    assert (steps(page), page.missed) == (list(range(1090, 1100)), 1088)
    journal.close()
    again = EventJournal(tmp_path / "journal.sqlite", most_bytes=10 * size)
    again.add(event(step) for step in range(1090, 1111))  # ten of them come again
    page = again.page((cursor,), 1000)
    assert (steps(page), page.missed) == (list(range(1101, 1111)), 1099)
    again.close()


def test_long_events_make_short_pages(journal):
    journal.add(event(step, reason="\0" * 2000) for step in range(1, 101))
    page, seen = journal.page((), 1000), []
    while page.events:
        assert len(("[" + ",\n".join(page.events) + "]\n").encode()) <= MOST_ANSWER_BYTES
        seen += steps(page)
        page = journal.page((page.cursor,), 1000)
    assert seen == list(range(1, 101))


def test_a_name_that_is_no_unicode_is_kept_as_json_spells_it(journal):
    told = event(reason="\udc80")
    journal.add([told])
    assert Event.from_json(journal.page((), 1).events[0]) == told


def test_its_events_are_read_where_no_temporary_file_can_be_written(journal):
    journal.add(event(step, reason="x" * 2000) for step in range(3000))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        found = [each.step for each in journal.last_events(2500)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert found == list(range(500, 3000))


def test_a_corrupt_file_gets_another_name_and_a_new_journal_is_begun(journal):
    journal.path.write_bytes(b"no database " * 1000)
    journal.add([event(1)])
    assert steps(journal.page((), 10)) == [1]
    assert [path.name for path in journal.path.parent.glob("*.corrupt-*")] != []


def test_a_second_process_can_not_use_it(journal):
    journal.add([event(1)])
    with pytest.raises(StateError, match="in use"):
        EventJournal(journal.path).add([event(2)])


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    return path


def write(folder, *events):
    for told in events:
        EventLog(event_file(folder, told.rank))(told)


def ask(server, query):
    with urllib.request.urlopen(f"{server.url}/events?{query}") as response:
        return [each["data"]["step"] for each in json.load(response)], response.headers


def refusal(server, query):
    with pytest.raises(urllib.error.HTTPError) as failure:
        ask(server, query)
    assert failure.value.headers["Content-Type"] == "application/json"
    return failure.value.code, json.load(failure.value)["error"]


def test_the_endpoint_gives_what_comes_after_a_cursor_and_stays_as_it_was_without_one(folder):
    agent = Agent([folder])
    server = serve_node(NodeCollector(agent), port=0)
    write(folder, event(3), event(1), event(2))
    agent.poll()
    assert ask(server, "limit=2")[0] == [3, 2]
    found, headers = ask(server, "after=&limit=2")
    assert (found, headers["X-ASD-Missed"]) == ([3, 1], "0")
    found, headers = ask(server, f"after={headers['X-ASD-Cursor']}")
    assert found == [2]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, server, f"after={headers['X-ASD-Cursor']}&wait=30")
        write(folder, event(4))
        agent.poll()
        assert waiting.result()[0] == [4]
    for name in ("limit=0", "limit=1001", "limit=%D9%A3", "limit=" + "9" * 5000, "limit=1&limit=2", "rank=0"):
        code, sentence = refusal(server, name)
        assert (code, name.partition("=")[0] in sentence) == (400, True)
    for name, value in (("after", "x"), ("rank", "1"), ("wait", "61")):
        code, sentence = refusal(server, f"after=&{name}={value}")
        assert (code, f"'{name}'" in sentence) == (400, True)
    server.close()
    agent.close()


def test_a_journal_that_can_not_be_written_is_told_to_who_asks_and_lacks_nothing_later(folder, caplog):
    place = folder / "exporter.sqlite"
    place.mkdir()
    agent = Agent([folder])
    server = serve_node(NodeCollector(agent), port=0)
    agent.poll()
    assert agent.problems["cursor"] == 0  # there is nothing to keep yet
    assert len([line for line in caplog.messages if str(place) in line]) == 1
    write(folder, event(1))
    agent.poll()
    assert agent.problems["cursor"] == 1
    assert agent.ready() == agent.journal.problem != ""
    code, sentence = refusal(server, "after=")
    assert (code, str(place) in sentence) == (503, True)
    place.rmdir()
    write(folder, event(2))
    agent.poll()
    assert ask(server, "after=")[0] == [1, 2]
    server.close()
    agent.close()


def test_events_that_wait_for_the_journal_take_a_bounded_amount_of_memory(folder, monkeypatch):
    for name, most in (("_MOST_UNKEPT", 3), ("_AT_ONCE", 1)):
        monkeypatch.setattr(f"asd.exporters.prometheus.agent.{name}", most)
    place = folder / "exporter.sqlite"
    place.mkdir()
    agent = Agent([folder])
    for step in range(1, 9):
        write(folder / f"job{step}", event(step))
    for _ in range(2):
        agent.poll()  # ends, although some folders had no turn yet
        assert len(agent._unkept) == 3
    place.rmdir()
    agent.poll()
    assert sorted(steps(agent.journal.page((), 10))) == list(range(1, 9))
    agent.close()
