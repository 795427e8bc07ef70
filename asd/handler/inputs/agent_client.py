"""Asks an agent for its events, over TLS and with a certificate, and reads what it answers as that of a stranger."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from asd.errors import StateError
from asd.event import Event
from asd.event_cursor import CURSOR, CURSOR_HEADER
from asd.handler.inputs.targets import Target

__all__ = ["Access", "AgentAnswer", "AgentError", "AgentLink", "nodes_of"]

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 10.0
_LONGEST_LINK_SECONDS = 60.0
_LONGEST_HEAD = 65536
_MOST_BYTES = 16 << 20  # an agent sends 4 MB, or one event
_ENDED = "it ended the connection without a whole answer, as who wants another certificate does"
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: .*)?")


@dataclass(frozen=True, slots=True)
class Access:
    """How agents are spoken to.

    Attributes:
        context: For TLS, with our certificate and whose theirs must be; None for plain HTTP.
        server_name: What the certificate of every agent is for whose node is told; empty where it is for the agent's
            own name.
    """

    context: ssl.SSLContext | None = None
    server_name: str = ""


class AgentError(Exception):
    """An agent that could not be asked, or answered something else; the text has no full stop."""


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """What an agent told.

    Attributes:
        nodes: Whose devices it may speak of.
        events: In its order.
        bad: How many more were none.
        cursor: Where to go on; empty when it has nothing yet.
        missed: How many it dropped before they were fetched.
        size: How many bytes it sent.
    """

    nodes: frozenset[str]
    events: list[Event]
    bad: int
    cursor: str
    missed: int
    size: int = 0


def nodes_of(target: Target, certificate: Mapping[str, Any] | None) -> frozenset[str]:
    """The nodes whose devices an agent may speak of.

    Args:
        target: The agent: what is told of its node there goes before everything else.
        certificate: Its certificate, as `SSLSocket.getpeercert` returns it; None without TLS.

    >>> sorted(nodes_of(Target("10.0.0.1", 9464, "", "10.0.0.1"), {"subjectAltName": (("DNS", "node7"),)}))
    ['10.0.0.1', 'node7']
    """
    if target.node:
        return frozenset({target.node})
    names = certificate.get("subjectAltName", ()) if certificate else ()
    found = {name for kind, name in names if kind == "DNS" and "*" not in name} | {target.name}
    return frozenset(found - {target.name} if target.is_shared else found)


class AgentLink:
    """The connection to one agent, which is kept from one question to the next: a handshake of TLS takes 2 ms.

    Args:
        target: The agent.
        connecting: Held while a connection is made.
    """

    def __init__(self, target: Target, connecting: asyncio.Semaphore) -> None:
        self._target = target
        self._connecting = connecting
        self._open: _Connection | None = None

    async def fetch(
        self,
        access: Access,
        cursors: Callable[[frozenset[str]], Sequence[str]],
        *,
        limit: int,
        wait: float = 0.0,
    ) -> AgentAnswer:
        """Asks for the events after what is known.

        Args:
            access: How to speak to it; a change of it makes a new connection.
            cursors: How far agents of these nodes were read.
            limit: So many events at most.
            wait: How long the agent waits for an event where there is none, in seconds.

        Raises:
            AgentError: It can't be reached, is not who it should be, or answers something else.
        """
        kept = self._open
        if kept is not None and kept.is_good(access):
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # it was closed meanwhile, so once more
                return await self._ask(kept, cursors(kept.nodes), limit, wait)
        self.close()
        try:
            async with self._connecting:
                made = await asyncio.wait_for(_connect(self._target, access), _CONNECT_SECONDS)
        except (asyncio.TimeoutError, OSError) as error:
            raise AgentError(_reason(error, "no connection was made in time")) from error
        self._open = made
        try:
            if not made.nodes:
                raise AgentError(f"its certificate names no node but {self._target.name}")
            return await self._ask(made, cursors(made.nodes), limit, wait)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise AgentError(_reason(error, _ENDED)) from error

    def close(self) -> None:
        """Ends the connection, if there is one."""
        if self._open is not None:
            self._open.writer.transport.abort()
            self._open = None

    async def _ask(self, link: _Connection, cursors: Sequence[str], limit: int, wait: float) -> AgentAnswer:
        query = urlencode([("after", each) for each in cursors or ("",)] + [("limit", str(limit))])
        query += f"&wait={wait:g}" if wait else ""
        head = {"Host": self._target.place, "Accept": "application/json", "Connection": "keep-alive"}
        lines = [f"GET /events?{query} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
        stays = False
        try:
            link.writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")
            status, headers, body = await _in_time(link, wait + _ANSWER_SECONDS)
            if status != 200:
                raise AgentError(f"it answers {status}: {_complaint(body)}")
            answer = _read(link.nodes, headers, body)
            stays = headers.get("connection", "").lower() == "keep-alive"
        except asyncio.TimeoutError as error:
            raise AgentError("it did not answer in time") from error
        except asyncio.LimitOverrunError as error:
            raise AgentError(_reason(error, _ENDED)) from error
        finally:
            if not stays:  # whatever went wrong, or was cancelled in the midst of an answer
                self.close()
        return answer


@dataclass(frozen=True, slots=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    nodes: frozenset[str]
    access: Access
    since: float

    def is_good(self, access: Access) -> bool:
        """Whether it may be used once more: certificates are looked at again every minute."""
        young = asyncio.get_running_loop().time() - self.since < _LONGEST_LINK_SECONDS
        return young and access == self.access and not self.writer.is_closing() and not self.reader.at_eof()


async def _connect(target: Target, access: Access) -> _Connection:
    if target.away:
        raise AgentError(target.away)
    if access.server_name and not target.node:
        raise AgentError(
            "with server_name, which all agents share, its node has to be told by a label or by Kubernetes"
        )
    name = access.server_name or target.name if access.context is not None else None
    reader, writer = await asyncio.open_connection(
        target.host, target.port, ssl=access.context, server_hostname=name, limit=_LONGEST_HEAD
    )
    nodes = nodes_of(target, writer.get_extra_info("peercert"))
    return _Connection(reader, writer, nodes, access, asyncio.get_running_loop().time())


async def _in_time(link: _Connection, seconds: float) -> tuple[int, dict[str, str], bytes]:
    """An answer; the connection is cut when it takes too long. `asyncio.wait_for` would make a task for each.

    Raises:
        asyncio.TimeoutError: It took too long.
    """
    late = []

    def cut() -> None:
        late.append(True)
        link.writer.transport.abort()

    timer = asyncio.get_running_loop().call_later(seconds, cut)
    try:
        return await _answer(link.reader)
    except (OSError, asyncio.IncompleteReadError):
        if late:
            raise asyncio.TimeoutError from None
        raise
    finally:
        timer.cancel()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    line, _, rest = head.partition(b"\r\n")
    match = _STATUS.fullmatch(line)
    # By hand: the parser of the standard library is one for mails, and takes most of the time of an answer.
    headers: dict[str, str] = {}
    for each in rest.decode("latin-1").split("\r\n"):
        name, _, value = each.partition(":")
        headers.setdefault(name.lower(), value.strip())
    size = headers.get("content-length", "")
    if match is None or not (size.isascii() and size.isdecimal()) or len(size) > 9 or int(size) > _MOST_BYTES:
        raise AgentError(f"it answers something else than an agent, or more than {_MOST_BYTES} bytes")
    return int(match[1]), headers, await reader.readexactly(int(size))


def _read(nodes: frozenset[str], headers: Mapping[str, str], body: bytes) -> AgentAnswer:
    cursor, missed = headers.get(CURSOR_HEADER.lower(), ""), headers.get("x-asd-missed", "0")
    if (cursor and CURSOR.fullmatch(cursor) is None) or not re.fullmatch("[0-9]{1,18}", missed, re.ASCII):
        raise AgentError("its answer has no cursor that is one")
    try:
        told = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise AgentError(f"its answer is no JSON: {error}") from error
    if not isinstance(told, list) or ((told or int(missed)) and not cursor):
        raise AgentError("its answer is no list of events with a cursor, as of an agent of this version")
    events = []
    for each in told:
        with contextlib.suppress(StateError):
            if isinstance(each, dict):
                events.append(Event.from_cloud_event(each))
    return AgentAnswer(nodes, events, len(told) - len(events), cursor, int(missed), len(body))


def _complaint(body: bytes) -> str:
    """What an agent says of a request that it refuses: a sentence, or JSON with one."""
    text = body.decode(errors="replace").strip()
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        text = str(json.loads(text)["error"])
    return text[:300].removesuffix(".")


def _reason(error: Exception, otherwise: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message.removesuffix('.')}"
    if isinstance(error, ssl.SSLError):
        return f"TLS fails: {error.reason or error}"
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return otherwise
