"""From agents to decisions, in one process with a real store: whose events count, and how far each agent was read."""

import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest

from asd import StateError
from asd.handler import FaultHandler, NoIsolator, Policy, Store
from asd.handler.db.fleet import Fleet
from asd.handler.inputs.agent_client import Access
from asd.handler.inputs.agent_feed import AgentFeed, read_cursors
from asd.handler.inputs.targets import FileTargets
from tests.support.events import event_maker
from tests.support.waiting import wait_for

event = event_maker(time=lambda step: time.time())


class Agent:
    """Gives the events it is told to, after the cursor that it is asked with, and remembers what it was asked."""

    def __init__(self, journal):
        self.journal = journal
        self.events = []
        self.asked, self.asked_at = [], []
        self.cursor = self.flood = self.behind = None
        self.fleet = ""
        agent = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self):
                agent.asked_at.append(time.monotonic())
                query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
                agent.asked.append(query["after"])
                own = [int(each.partition(".")[2]) for each in query["after"] if each.startswith(agent.journal * 32)]
                start = max(own, default=0)
                known = json.dumps([json.loads(each.to_json()) for each in agent.events[start:]]).encode()
                self.answer(known if agent.flood is None else agent.flood)

            def answer(self, body):
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("X-ASD-Cursor", agent.cursor or f"{agent.journal * 32}.{len(agent.events)}")
                self.send_header("X-ASD-Fleet", agent.fleet)
                if agent.behind is not None:
                    self.send_header("X-ASD-Clock", f"{time.time() - agent.behind:.3f}")
                self.end_headers()
                with suppress(OSError):  # who is not heard to the end
                    self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.place = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def running(tmp_path):
    """Starts feeds on one store, from agents by node."""
    with ExitStack() as open_things:
        store = Store(tmp_path / "handler.sqlite")
        open_things.callback(store.close)
        handler = FaultHandler(store, Policy(), NoIsolator(store), lambda _event: None, from_beginning=True)

        def start(agents):
            groups = [{"targets": [agent.place], "labels": {"node": node}} for node, agent in agents.items()]
            (tmp_path / "agents.json").write_text(json.dumps(groups))
            feed = AgentFeed(handler, [FileTargets(tmp_path / "agents.json")], Access, lambda: None)
            open_things.callback(feed.puller.close)
            return feed

        start.store, start.handler = store, handler
        yield start


@pytest.fixture
def agents():
    made = [Agent("a"), Agent("b")]
    yield made
    for agent in made:
        agent.close()


def work(feed, until, seconds=30.0):
    deadline = time.monotonic() + seconds
    decisions = []
    while not until():
        assert time.monotonic() < deadline, "it did not happen"
        decisions += feed.step() or []
        time.sleep(0.01)
    return decisions


def test_an_agent_that_names_the_journal_of_another_moves_no_cursor_of_that_one(running, agents):
    one, forger = agents
    one.events = [event(1)]
    forger.events, forger.cursor = [event(1, "node8")], f"{'a' * 32}.999999"
    feed = running({"node7": one, "node8": forger})
    work(feed, lambda: set(read_cursors(running.store)) == {"node7", "node8"})
    assert read_cursors(running.store)["node7"] == [f"{'a' * 32}.1"]
    one.events.append(event(2))
    work(feed, lambda: read_cursors(running.store)["node7"] == [f"{'a' * 32}.2"])
    assert all("999999" not in cursor for query in one.asked for cursor in query)


def test_it_goes_on_where_it_was_also_when_an_agent_gets_its_earlier_journal_back(running, agents):
    one, _ = agents
    one.events = [event(1), event(2)]
    feed = running({"node7": one})
    work(feed, lambda: feed.events == 2 and feed.puller.caught_up)
    feed.puller.close()
    one.journal, one.events = "c", [event(3)]
    feed = running({"node7": one})
    work(feed, lambda: feed.events == 1 and feed.puller.caught_up)
    feed.puller.close()
    one.journal, one.events = "a", [event(1), event(2), event(4)]
    feed = running({"node7": one})
    work(feed, lambda: feed.puller.caught_up)
    assert feed.events == 1
    assert read_cursors(running.store)["node7"] == [f"{'c' * 32}.1", f"{'a' * 32}.3"]


GIVEN_BACK = event(2, kind="recovery", recovered_by="person")


@pytest.mark.parametrize("more", [GIVEN_BACK, event(2, "node8"), event(2, "node8", kind="stress")])
def test_an_agent_reports_its_own_node_only_and_gives_no_device_back(running, agents, more):
    one, _ = agents
    harmless = [event(step, kind="recovery", recovered_by=by) for step, by in ((8, "vendor"), (9, "handler"))]
    one.events = [event(1), *harmless, event(2), more, event(3)]
    feed = running({"node7": one})
    decisions = work(feed, lambda: feed.puller.caught_up)
    assert [each.action for each in decisions] == ["strike", "noted", "noted", "strike", "waiting"]
    assert (feed.events, feed.refused) == (5, 1)
    (sentence,) = feed.complaints
    assert (one.place in sentence, more.kind in sentence) == (True, True)


PARTS = ["SN1", {"model": "910B3", "firmware": "7.1", "made up": 3}]
ROWS = [["node7", "Ascend:0", *PARTS], ["node8", "Ascend:1", *PARTS], ["node7", "Ascend:0", *PARTS, 1e9]]


@pytest.mark.parametrize(
    ("fleet", "devices"),
    [
        (ROWS, ["Ascend:0"]),
        ([["node7", f"Ascend:{number}", *PARTS] for number in range(99)], [f"Ascend:{n}" for n in range(32)]),
        ([["node7", "Ascend:0", "SN1", {"model": "m" * 65}]], []),
        ([["node7", "\ud800", *PARTS]], []),
        ([["node7"]], []),
        ({}, []),
    ],
)
def test_devices_get_the_days_of_the_handler_whatever_an_agent_sends(running, agents, monkeypatch, fleet, devices):
    monkeypatch.setattr("asd.handler.inputs.agent_feed._FLEET_SECONDS", 0.0)
    one, _ = agents
    one.fleet = json.dumps(fleet)
    feed, began = running({"node7": one}), time.monotonic()
    work(feed, lambda: feed.puller.caught_up and (Fleet(running.store).used() or feed.complaints))
    assert bool(feed.complaints) == (not devices)
    monkeypatch.setattr("asd.handler.inputs.agent_feed._FLEET_SECONDS", 60.0)
    used = Fleet(running.store).used()
    assert sorted(each.device for each in used) == sorted(devices)
    assert all(each.days <= (time.monotonic() - began) / 86400 for each in used)


FLOODS = {
    "too large": b"[" + b",".join([b'{"":{}}'] * 2_000_000) + b"]",
    "too many": b"[" + b",".join([b'{"":{}}'] * 131_000) + b"]",
    "no events": b"[" + b",".join([b'{"a":[' + b",".join([b'{"":{}}'] * 200) + b"]}"] * 600) + b"]",
    "one huge": b'[{"a":[' + b",".join([b'{"":{}}'] * 131_000) + b"]}]",
}


@pytest.mark.parametrize("flood", FLOODS)
def test_an_agent_that_sends_what_no_agent_sends_is_put_aside_and_others_are_heard(running, agents, flood, monkeypatch):
    monkeypatch.setattr("asd.handler.inputs.puller._SHORTEST_ASIDE", 0.3)
    one, evil = agents
    one.events, evil.flood = [event(1)], FLOODS[flood]
    began = time.process_time()
    feed = running({"node7": one, "node8": evil})
    work(feed, lambda: len(evil.asked_at) == 3)
    one.events.append(event(2, kind="replay", verdict="persistent"))
    (decision,) = work(feed, lambda: feed.events == 2)[-1:]
    assert decision.action == "isolated"
    assert time.process_time() - began < 3.0
    first, second, third, *_ = evil.asked_at
    assert second - first >= 0.3
    assert third - second >= 0.6
    work(feed, lambda: feed.puller.failures == 3)
    assert feed.puller.states[evil.place].since
    (sentence,) = feed.news()
    assert evil.place in sentence


def test_the_verdict_of_one_node_comes_before_what_a_noisy_one_tells(running, agents):
    quiet, noisy = agents
    noisy.events = [event(step, "node8", rank=step) for step in range(1, 251)]
    feed = running({"node7": quiet, "node8": noisy})
    wait_for(lambda: feed.puller.batches)
    quiet.events = [event(1, kind="replay", verdict="persistent")]
    wait_for(lambda: len(feed.puller.batches) == 2)
    assert feed.step()[0].action == "isolated"


# In a small process, for Linux counts what a process had before it became another program.
MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def test_many_agents_that_send_what_no_agent_sends_take_little_memory(tmp_path):
    with ExitStack() as open_things:
        evil = [Agent("e") for _ in range(64)]
        for agent, flood in zip(evil, itertools.cycle(FLOODS.values()), strict=False):
            open_things.callback(agent.close)
            agent.flood = flood
        groups = [{"targets": [agent.place], "labels": {"node": agent.place}} for agent in evil]
        (tmp_path / "agents.json").write_text(json.dumps(groups))
        options = ("--agents", tmp_path / "agents.json", "--state", tmp_path / "h.sqlite", "--once")
        command = [sys.executable, "-m", "asd", "handler", *map(str, options)]
        environ = {**os.environ, "ASD_RUN_DIR": str(tmp_path)}
        measured = subprocess.run([sys.executable, "-c", MEASURED, *command], stdout=subprocess.PIPE, env=environ)
    code, kilobytes = map(int, measured.stdout.split())
    assert code == 1  # they were heard, and are none
    assert kilobytes < 256 << 10


def test_who_misbehaves_between_two_good_answers_is_put_aside_for_longer_each_time(running, agents, monkeypatch):
    monkeypatch.setattr("asd.handler.inputs.puller._SHORTEST_ASIDE", 0.3)
    one, _ = agents
    one.events = [event(1)]
    feed = running({"node7": one})
    work(feed, lambda: feed.events == 1)
    one.flood = b"[{}]"
    work(feed, lambda: feed.puller.failures == 2)
    one.flood = None
    work(feed, lambda: feed.events == 2 or feed.puller.caught_up)
    one.flood = b"[{}]"
    before = len(one.asked_at)
    work(feed, lambda: len(one.asked_at) == before + 2)
    assert one.asked_at[-1] - one.asked_at[-2] >= 0.6


@pytest.mark.parametrize("behind", [3600.0, 9 * 3600.0, -9 * 3600.0])
def test_a_node_whose_clock_is_wrong_is_believed_and_its_clock_is_told(running, agents, behind):
    one, _ = agents
    one.behind = behind
    one.events = [event(1, kind="replay", verdict="persistent", time=time.time() - behind)]
    feed = running({"node7": one})
    (decision,) = work(feed, lambda: feed.events == 1)
    assert decision.action == "isolated"
    work(feed, lambda: feed.numbers()["clock_difference_seconds"] == pytest.approx(abs(behind), abs=5))
    (sentence,) = feed.complaints
    assert f"node7 is {abs(behind):.0f} s {'behind' if behind > 0 else 'ahead'}" in sentence


def test_what_the_store_could_not_take_is_taken_the_next_time(running, agents, monkeypatch):
    one, _ = agents
    one.events = [event(1), event(2)]
    feed = running({"node7": one})
    whole = running.handler.handle_many
    monkeypatch.setattr(running.handler, "handle_many", fail)
    with pytest.raises(StateError, match="the disk is full"):
        work(feed, lambda: False)
    monkeypatch.setattr(running.handler, "handle_many", whole)
    decisions = work(feed, lambda: feed.events == 2)
    assert [decision.action for decision in decisions] == ["strike", "strike"]


def fail(*_):
    raise StateError("the disk is full.")


def test_no_strike_may_settle_before_all_agents_were_heard_or_could_not_be_reached(running, agents):
    one, _ = agents
    with socket.create_server(("127.0.0.1", 0)) as server:  # takes a question and answers nothing
        silent = SimpleNamespace(place=f"127.0.0.1:{server.getsockname()[1]}")
        feed = running({"node7": one, "node8": silent})
        work(feed, lambda: one.asked)
        assert not feed.puller.caught_up
    work(feed, lambda: feed.puller.caught_up)
    assert feed.puller.states[silent.place].since


def test_who_can_not_be_reached_is_told_once(running, agents):
    one, other = agents
    other.server.server_close()
    feed = running({"node7": one, "node8": other})
    work(feed, lambda: feed.puller.caught_up)
    (sentence,) = feed.news()
    assert other.place in sentence
    assert feed.news() == []


def test_nothing_to_pull_from_is_no_reason_to_be_ready(running, agents):
    feed = running({})
    work(feed, lambda: feed.puller.looked and feed.nothing_found)
    assert len(feed.complaints) == 1
    one, other = agents
    other.server.server_close()
    feed = running({"node8": other})
    work(feed, lambda: feed.puller.states and feed.nothing_found and feed.puller.states[other.place].since)
    feed = running({"node7": one, "node8": other})
    work(feed, lambda: feed.nothing_found == "")
