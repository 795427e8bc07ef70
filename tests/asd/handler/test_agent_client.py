"""What an agent answers is that of a stranger: whatever it is, the handler names it and goes on."""

import asyncio
import json
import socket
import threading
import time

import pytest

from asd.handler.inputs import agent_client
from asd.handler.inputs.agent_client import Access, AgentError, AgentLink
from asd.handler.inputs.targets import Target
from tests.support.events import event_maker

CURSOR = f"{'a' * 32}.7"


event = event_maker(time=lambda step: 1e9 + step)


class Canned:
    """An agent that answers with the same bytes, whatever it is asked."""

    def __init__(self, answer, *, pause=0.0, at_once=0):
        self.asked = b""
        self._answer = answer
        self._pause, self._at_once = pause, at_once
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.target = Target("127.0.0.1", self._listener.getsockname()[1], "node7", "127.0.0.1")
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with self._listener:
            client, _ = self._listener.accept()
        with client:
            self.asked = client.recv(65536)
            if self._at_once:
                client.sendall(self._answer[: self._at_once])
            for byte in self._answer[self._at_once :] if self._pause else ():
                time.sleep(self._pause)
                try:
                    client.send(bytes([byte]))
                except OSError:
                    return
            if not self._pause:
                client.sendall(self._answer)


def response(body, status="200 OK", cursor=CURSOR, missed="0"):
    head = (
        f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nX-ASD-Cursor: {cursor}\r\nX-ASD-Missed: {missed}\r\n\r\n"
    )
    return head.encode() + body


def asked(agent, cursors=(), access=None, **options):
    async def ask():
        known = asyncio.Semaphore(1)
        link = AgentLink(agent.target, known)
        try:
            return await link.fetch(access or Access(), cursors, limit=5, **options)
        finally:
            link.close()

    return asyncio.run(ask())


def test_it_asks_with_its_cursors_and_reads_events_in_their_order():
    told = [event(2), event(1)]
    agent = Canned(response(f"[{told[0].to_json()},\n{told[1].to_json()}]\n".encode()))
    answer = asked(agent, [CURSOR], wait=3.0)
    assert (answer.events, answer.bad, answer.cursor, answer.missed) == (told, 0, CURSOR, 0)
    line = agent.asked.decode().partition("\r\n")[0]
    assert line == f"GET /events?after={CURSOR}&limit=5&wait=3 HTTP/1.1"


@pytest.mark.parametrize(
    ("events", "is_full"), [([event(1)] * 4, False), ([event(1)] * 5, True), ([event(1, rule="r" * 50)] * 2, False)]
)
def test_an_answer_with_all_that_was_asked_for_may_have_more_behind_it(events, is_full):
    body = f"[{', '.join(each.to_json() for each in events)} ]".encode()
    assert asked(Canned(response(body))).is_full is is_full


def test_what_is_no_event_is_counted_and_hides_none_of_the_others():
    body = json.dumps([json.loads(event(1).to_json()), {}, 7, json.loads(event(2).to_json())]).encode()
    answer = asked(Canned(response(body, missed="12")))
    assert ([each.step for each in answer.events], answer.bad, answer.missed) == ([1, 2], 2, 12)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "closed .* TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "more than 1048576 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n[]", "more than 1048576 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[]", "closed"),
        (b"x" * 200_000, "head"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 500 + b"\r\n", "more than 1048576 bytes"),
        *((response(body), "no JSON") for body in (b"{}", b"[1 2]", b"[\xff]", b"[" * 200_000)),
        (response(b"[1]", cursor=""), "no cursor"),
        (response(b"[1,1,1,1,1,1]"), "5 events"),
        (response(b"[]", cursor="../../etc"), "no valid cursor"),
        (response(b"[]", missed="-1"), "no valid cursor"),
        (response(b'{"error": "valid are since."}', "400 Bad Request"), "400: valid are since$"),
        (response(b"This needs a name.\n", "401 Unauthorized"), "401: This needs a name$"),
    ],
)
def test_an_answer_of_another_kind_is_named(answer, reason):
    with pytest.raises(AgentError, match=reason):
        asked(Canned(answer))


@pytest.mark.parametrize("part", ["head", "body"])
def test_an_agent_that_answers_byte_by_byte_keeps_nobody_waiting(monkeypatch, part):
    monkeypatch.setattr(agent_client, "_ANSWER_SECONDS", 0.5)
    answer = response(b"[" + b" " * 1000 + b"]")
    agent = Canned(answer, pause=0.05, at_once=answer.index(b"[") if part == "body" else 0)
    with pytest.raises(AgentError, match="in time"):
        asked(agent)
