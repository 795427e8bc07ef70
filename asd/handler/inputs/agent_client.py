"""Asks an agent for its events, over TLS and with a certificate, and reads what it answers as that of a stranger."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPMessage, parse_headers
from typing import Any
from urllib.parse import urlencode

from asd.errors import StateError
from asd.event import Event
from asd.event_cursor import CURSOR
from asd.handler.inputs.targets import Target

__all__ = ["Access", "AgentAnswer", "AgentError", "fetch", "nodes_of"]

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 10.0
_LONGEST_HEAD = 65536
_MOST_BYTES = 16 << 20  # an agent sends 4 MB, or one event
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: .*)?")


@dataclass(frozen=True, slots=True)
class Access:
    """How agents are spoken to.

    Attributes:
        context: For TLS, with our certificate and whose theirs must be; None for plain HTTP.
        headers: More headers of a request, such as a password.
        server_name: What the certificate of every agent is for whose node is told; empty where it is for the agent's
            own name.
    """

    context: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
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
    """

    nodes: frozenset[str]
    events: list[Event]
    bad: int
    cursor: str
    missed: int


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


async def fetch(
    target: Target,
    access: Access,
    cursors: Callable[[frozenset[str]], Sequence[str]],
    connecting: asyncio.Semaphore,
    *,
    limit: int,
    wait: float = 0.0,
) -> AgentAnswer:
    """Asks for the events after what is known.

    Args:
        target: The agent.
        access: How to speak to it.
        cursors: How far agents of these nodes were read.
        connecting: Held while a connection is made.
        limit: So many events at most.
        wait: How long the agent waits for an event where there is none, in seconds.

    Raises:
        AgentError: It can't be reached, is not who it should be, or answers something else.
    """
    if target.away:
        raise AgentError(target.away)
    if access.server_name and not target.node:
        raise AgentError(
            "with server_name, which all agents share, its node has to be told by a label or by Kubernetes"
        )
    try:
        async with connecting:
            reader, writer = await asyncio.wait_for(_connect(target, access), _CONNECT_SECONDS)
    except (asyncio.TimeoutError, OSError) as error:
        raise AgentError(_reason(error, "no connection was made in time")) from error
    try:
        nodes = nodes_of(target, writer.get_extra_info("peercert"))
        if not nodes:
            raise AgentError(f"its certificate names no node but {target.name}")
        query = urlencode([("after", each) for each in cursors(nodes) or ("",)] + [("limit", str(limit))])
        query += f"&wait={wait:g}" if wait else ""
        head = {"Host": target.place, "Accept": "application/json", "Connection": "close", **access.headers}
        lines = [f"GET /events?{query} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
        writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")
        status, headers, body = await asyncio.wait_for(_answer(reader), wait + _ANSWER_SECONDS)
    except asyncio.TimeoutError as error:
        raise AgentError("it did not answer in time") from error
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, HTTPException) as error:
        ended = "it ended the connection without a whole answer, as who wants another certificate does"
        raise AgentError(_reason(error, ended)) from error
    finally:
        writer.transport.abort()
    if status != 200:
        raise AgentError(f"it answers {status}: {_complaint(body)}")
    return _read(nodes, headers, body)


async def _connect(target: Target, access: Access) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    name = access.server_name or target.name if access.context is not None else None
    return await asyncio.open_connection(
        target.host, target.port, ssl=access.context, server_hostname=name, limit=_LONGEST_HEAD
    )


async def _answer(reader: asyncio.StreamReader) -> tuple[int, HTTPMessage, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    line, _, rest = head.partition(b"\r\n")
    match = _STATUS.fullmatch(line)
    headers = parse_headers(io.BytesIO(rest))
    size = headers.get("Content-Length", "")
    if match is None or not (size.isascii() and size.isdecimal()) or len(size) > 9 or int(size) > _MOST_BYTES:
        raise AgentError(f"it answers something else than an agent, or more than {_MOST_BYTES} bytes")
    return int(match[1]), headers, await reader.readexactly(int(size))


def _read(nodes: frozenset[str], headers: HTTPMessage, body: bytes) -> AgentAnswer:
    cursor, missed = headers.get("X-ASD-Cursor", ""), headers.get("X-ASD-Missed", "0")
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
    return AgentAnswer(nodes, events, len(told) - len(events), cursor, int(missed))


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
