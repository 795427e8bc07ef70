"""A handler that pulls keeps its connection to an agent; everybody else's ends with the answer, as before."""

import asyncio
import http.client

import pytest
from prometheus_client import CollectorRegistry

from asd import Event, Level
from asd.exporters.http.access.web_config import WebConfig
from asd.exporters.http.server import start_server
from asd.exporters.prometheus.event_journal import EventJournal
from asd.handler.inputs import agent_client
from asd.handler.inputs.agent_client import Access, AgentError, AgentLink
from asd.handler.inputs.targets import Target
from tests.support.events import made_of


def event(step):
    return made_of(
        Event, run="r", rank=0, host="node7", device="Ascend:0", step=step, checkpoint="a", value=2e6, limits=(1e6,),
        level=Level.ERROR, kind="anomaly", rule="threshold", feature="l2", reason="r", refused=True, time=float(step),
    )  # fmt: skip


@pytest.fixture
def journal(tmp_path):
    made = EventJournal(tmp_path / "journal.sqlite")
    made.add([event(step) for step in range(1, 6)])
    yield made
    made.close()


@pytest.fixture
def start(journal, tmp_path):
    servers = []

    def begin(port=0, web=""):
        config = None
        if web:
            (tmp_path / "web.yml").write_text(web)
            (tmp_path / "web.yml").chmod(0o600)
            config = WebConfig(tmp_path / "web.yml")
        servers.append(
            start_server(
                registry=CollectorRegistry(), ledger_events=list, ready=str, port=port, journal=journal,
                web_config=config,
            )
        )  # fmt: skip
        return servers[-1]

    yield begin
    for server in servers:
        server.close()


def pulled(server, meanwhile=lambda turn: None, turns=3):
    """The steps that each question got, and the port that it came from."""

    async def pull():
        link, cursors, told = AgentLink(Target("127.0.0.1", server.port, "node7", "x"), asyncio.Semaphore(1)), [], []
        for turn in range(turns):
            answer = await link.fetch(Access(), lambda _nodes: cursors[-1:], limit=2)
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


def test_a_change_of_the_passwords_ends_what_was_kept(start, tmp_path):
    server = start(web="http_server_config: {headers: {X-Frame-Options: deny}}\n")
    users = "basic_auth_users: {alice: $2b$04$nzzGS2YsdAxXcMxVGpYWUeKOF3vTDKfyCDmg6d9Dpt7KQ4F0RSTiK}\n"

    def change(turn):
        if turn == 0:
            (tmp_path / "web.yml").write_text(users)

    with pytest.raises(AgentError, match="it answers 401"):
        pulled(server, change)


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/events?after=", {}),
        ("/events?after=", {"Connection": "close"}),
        ("/metrics", {"Connection": "keep-alive"}),
        ("/events?limit=1", {"Connection": "keep-alive"}),
        ("/events?after=x", {"Connection": "keep-alive"}),
    ],
)
def test_the_connection_of_everybody_else_ends_with_the_answer(start, path, headers):
    connection = http.client.HTTPConnection("127.0.0.1", start().port, timeout=20)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    assert response.getheader("Connection") == "close"
    response.read()
    connection.close()
