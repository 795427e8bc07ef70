"""Asks an agent for its events, over TLS and with a certificate, and does not trust the form of its answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from urllib.parse import urlencode

import msgspec

from asd.errors import StateError
from asd.event import Event
from asd.handler.inputs.cursor import (
    CLOCK_HEADER,
    CURSOR,
    CURSOR_HEADER,
    FLEET_HEADER,
    MOST_ANSWER_BYTES,
    MOST_EVENT_BYTES,
)
from asd.handler.inputs.targets import Target

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 10.0
_LONGEST_LINK_SECONDS = 60.0
_LONGEST_HEAD = 16384
_LARGE = MOST_EVENT_BYTES  # an answer of more bytes needs room
_ENDED = "it closed the connection before its answer was complete; it may require {}"
_CLOCK = re.compile(r"[0-9]{1,11}\.[0-9]{1,6}", re.ASCII)
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: .*)?")


@dataclass(frozen=True, slots=True)
class Access:
    """Settings of the connections to agents."""

    context: ssl.SSLContext | None = None  # for TLS: our certificate, and who signs theirs; None for plain HTTP
    server_name: str = ""  # name in the certificate of every agent; empty where it is the agent's own name


class AgentError(Exception):
    """Failure to ask an agent, or an answer that is not valid; the text has no full stop.

    Args:
        misbehaves: Whether it was reached and sent what no agent sends.
    """

    def __init__(self, reason: str, *, misbehaves: bool = False) -> None:
        super().__init__(reason)
        self.misbehaves = misbehaves


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """Answer of an agent."""

    events: list[Event]  # its events, in its order
    bad: int  # number of entries that were not events
    cursor: str  # position for the next request; empty when it has nothing yet
    missed: int  # number of events that it dropped before they were fetched
    is_full: bool = False  # whether it may have more
    clock: float | None = None  # its time when it answered, in seconds since the epoch; None when not known
    fleet: str = ""  # JSON of its devices in training; empty when not known


class AgentLink:
    """The connection to one agent, which is kept from one question to the next: a handshake of TLS takes 2 ms.

    Args:
        connecting: Held while a connection is made.
        parsers: Where the JSON of answers is read.
    """

    def __init__(self, target: Target, connecting: asyncio.Semaphore, parsers: Executor | None = None) -> None:
        self._target, self._connecting, self._parsers = target, connecting, parsers
        self._open: _Connection | None = None

    async def fetch(
        self,
        access: Access,
        cursors: Sequence[str],
        *,
        limit: int,
        wait: float = 0.0,
        room: Callable[[], Awaitable[object]] | None = None,
    ) -> AgentAnswer:
        """Asks for the events after the known ones.

        `cursors` say how far its node was read. The agent waits up to `wait` seconds for an event where there is none.
        `room` is awaited before a large answer is read. A change of `access` makes a new connection.

        Raises:
            AgentError: It cannot be reached, has the wrong certificate, or its answer is not valid.
        """
        query = urlencode([("after", each) for each in cursors or ("",)] + [("limit", str(limit))])
        query += f"&wait={wait:g}" if wait else ""
        kept = self._open
        if kept is not None and kept.is_good(access):
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # it was closed meanwhile, so once more
                return await self._ask(kept, query, limit, wait, room)
        self.close()
        try:
            async with self._connecting:
                made = await asyncio.wait_for(_connect(self._target, access), _CONNECT_SECONDS)
        except (asyncio.TimeoutError, OSError) as error:
            hint = "; the agent may serve plain HTTP" if access.context is not None else ""
            raise AgentError(_reason(error, f"no connection was made in time{hint}")) from error
        self._open = made
        try:
            return await self._ask(made, query, limit, wait, room)
        except (ConnectionResetError, asyncio.IncompleteReadError) as error:
            wanted = "TLS" if access.context is None else "another certificate"
            raise AgentError(_ENDED.format(wanted)) from error
        except OSError as error:
            raise AgentError(_reason(error, "the connection broke")) from error

    def close(self) -> None:
        """Ends the connection, if there is one."""
        if self._open is not None:
            self._open.writer.transport.abort()
            self._open = None

    async def _ask(
        self, link: _Connection, query: str, limit: int, wait: float, room: Callable[[], Awaitable[object]] | None
    ) -> AgentAnswer:
        head = {"Host": self._target.place, "Accept": "application/json", "Connection": "keep-alive"}
        lines = [f"GET /events?{query} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
        stays = False
        try:
            link.writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")
            status, headers, size = await asyncio.wait_for(_head(link.reader), wait + _ANSWER_SECONDS)
            if size > _LARGE and room is not None:
                await room()
            body = await asyncio.wait_for(link.reader.readexactly(size), _ANSWER_SECONDS)
            if status != 200:
                raise AgentError(f"it answers {status}: {_complaint(body)}")
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(self._parsers, _read, headers, body, limit)
            stays = headers.get("connection", "").lower() == "keep-alive"
        except asyncio.TimeoutError as error:
            raise AgentError("it did not answer in time", misbehaves=True) from error
        except asyncio.LimitOverrunError as error:
            raise _wrong("its answer has too long a head") from error
        finally:
            if not stays:  # whatever went wrong, or was cancelled in the midst of an answer
                self.close()
        return answer


@dataclass(frozen=True, slots=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    access: Access
    since: float

    def is_good(self, access: Access) -> bool:
        """Returns whether the link may be reused; it may not grow old, so that certificates are checked regularly."""
        young = asyncio.get_running_loop().time() - self.since < _LONGEST_LINK_SECONDS
        return young and access == self.access and not self.writer.is_closing() and not self.reader.at_eof()


async def _connect(target: Target, access: Access) -> _Connection:
    if target.away:
        raise AgentError(target.away)
    name = access.server_name or target.name if access.context is not None else None
    reader, writer = await asyncio.open_connection(
        target.host, target.port, ssl=access.context, server_hostname=name, limit=_LONGEST_HEAD
    )
    return _Connection(reader, writer, access, asyncio.get_running_loop().time())


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], int]:
    """Status and headers of an answer, and how many bytes follow."""
    head = await reader.readuntil(b"\r\n\r\n")
    line, _, rest = head.partition(b"\r\n")
    match = _STATUS.fullmatch(line)
    # By hand: the parser of the standard library is one for mails, and takes most of the time of an answer.
    headers: dict[str, str] = {}
    for each in rest.decode("latin-1").split("\r\n"):
        name, _, value = each.partition(":")
        headers.setdefault(name.lower(), value.strip())
    size = headers.get("content-length", "")
    known = size.isascii() and size.isdecimal() and len(size) <= 9
    if match is None or not known or int(size) > MOST_ANSWER_BYTES:
        raise _wrong(f"it answers something else than an agent, or more than {MOST_ANSWER_BYTES} bytes")
    return int(match[1]), headers, int(size)


def _read(headers: Mapping[str, str], body: bytes, limit: int) -> AgentAnswer:
    cursor, missed = headers.get(CURSOR_HEADER.lower(), ""), headers.get("x-asd-missed", "0")
    if (cursor and CURSOR.fullmatch(cursor) is None) or not re.fullmatch("[0-9]{1,18}", missed, re.ASCII):
        raise _wrong("its answer has no valid cursor")
    events: list[Event] = []
    try:
        values = msgspec.json.decode(body, type=list[msgspec.Raw])  # each is read by itself: objects take much memory
        count = len(values)
        if count > limit:
            raise _wrong(f"its answer is no JSON list of at most the {limit} events that were asked for")
        for value in values:
            with contextlib.suppress(StateError):
                if len(value) <= MOST_EVENT_BYTES:
                    events.append(Event.from_json(str(value, "utf-8", "replace")))
    except (ValueError, RecursionError) as error:
        raise _wrong(f"its answer is no JSON list of events: {error}") from error
    if (count or int(missed)) and not cursor:
        raise _wrong("its answer has events and no cursor")
    is_full = count >= limit or len(body) > MOST_ANSWER_BYTES - MOST_EVENT_BYTES
    clock = float(shown) if _CLOCK.fullmatch(shown := headers.get(CLOCK_HEADER.lower(), "")) else None
    fleet = headers.get(FLEET_HEADER.lower(), "")
    return AgentAnswer(events, count - len(events), cursor, int(missed), is_full, clock, fleet)


def _wrong(reason: str) -> AgentError:
    return AgentError(reason, misbehaves=True)


def _complaint(body: bytes) -> str:
    """Returns the sentence with which an agent refused a request; `body` is the sentence, or JSON with it."""
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
    return error.strerror if isinstance(error, OSError) and error.strerror else otherwise
