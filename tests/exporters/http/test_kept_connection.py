"""A handler that pulls keeps its connection to an agent."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from asd.exporters.http.routes import start_server
from asd.exporters.prometheus.event_journal import EventJournal
from asd.handler.inputs import agent_client
from asd.handler.inputs.agent_client import Access, AgentLink
from asd.handler.inputs.targets import Target
from tests.support.events import event_maker

event = event_maker()


@pytest.fixture
def journal(tmp_path):
    made = EventJournal(tmp_path / "journal.sqlite")
    made.add([event(step) for step in range(1, 6)])
    yield made
    made.close()


@pytest.fixture
def start(journal):
    servers = []

    def begin(port=0):
        more = {"registry": CollectorRegistry(), "ledger_events": list, "ready": str}
        servers.append(start_server(port=port, journal=journal, **more))
        return servers[-1]

    yield begin
    for server in servers:
        server.close()


def pulled(server, meanwhile=lambda turn: None, turns=3):
    """The steps that each question got, and the port that it came from."""

    async def pull():
        link, cursors, told = AgentLink(Target("127.0.0.1", server.port, "node7", "x"), asyncio.Semaphore(1)), [], []
        for turn in range(turns):
            answer = await link.fetch(Access(), cursors[-1:], limit=2)
            cursors.append(answer.cursor)
            at = link._open and link._open.writer.get_extra_info("sockname")[1]
            told.append(([each.step for each in answer.events], at))
            await asyncio.to_thread(meanwhile, turn)
        link.close()
        return told

    return asyncio.run(pull())


def test_several_questions_go_over_one_connection(start):
    told = pulled(start())
    assert [steps for steps, _ in told] == [[1, 2], [3, 4], [5]]
    assert len({port for _, port in told}) == 1
    assert told[0][1] is not None


def test_a_connection_is_not_kept_for_ever(start, monkeypatch):
    monkeypatch.setattr(agent_client, "_LONGEST_LINK_SECONDS", 0.0)
    assert len({port for _, port in pulled(start())}) == 3


def test_an_agent_that_was_started_anew_is_asked_again_over_another_connection(start):
    first = start()
    port = first.port

    def restart(turn):
        if turn == 0:
            first.close()
            start(port)

    told = pulled(first, restart)
    assert [steps for steps, _ in told] == [[1, 2], [3, 4], [5]]
    assert told[0][1] != told[1][1]
