"""Reads the head of an HTTP/1 request and writes responses, in memory; sockets are the server's."""

from __future__ import annotations

import http
import io
import re
from collections.abc import Mapping
from email.message import Message
from email.utils import formatdate
from http.client import HTTPException, parse_headers
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

__all__ = ["TEXT", "HttpError", "HttpRequest", "Response", "body_size", "parse_head", "sentence"]

TEXT = "text/plain; charset=utf-8"
_LONGEST_LINE = 8192
_MOST_PARAMETERS = 1000
_METHOD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_VERSION = re.compile(r"HTTP/(\d)\.\d", re.ASCII)


class HttpRequest(NamedTuple):
    """What a client asks for.

    Attributes:
        method: As sent, for example `GET`.
        path: Without the query, not decoded: no path of ours needs it.
        query: The values of each parameter, in order.
        headers: Names are found whatever their case.
        has_body: Whether a body follows.
        body: What of it was read, see `Site`.
        client: The address it comes from.
    """

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Message
    has_body: bool
    body: bytes = b""
    client: str = ""


class Response(NamedTuple):
    """What a client gets.

    Attributes:
        status: HTTP status, 100..599.
        body: Sent unless the method was HEAD.
        content_type: Media type of the body.
        headers: More headers.
    """

    status: int
    body: bytes
    content_type: str = TEXT
    headers: Mapping[str, str] = {}

    def to_bytes(self, *, with_body: bool = True) -> bytes:
        """The response as it goes over the wire; the connection ends with it."""
        headers = {
            "Server": "asd",
            "Date": formatdate(usegmt=True),
            "Content-Type": self.content_type,
            "Content-Length": str(len(self.body)),
            "X-Content-Type-Options": "nosniff",
            "Connection": "close",
            **self.headers,
        }
        lines = [f"HTTP/1.1 {self.status} {http.HTTPStatus(self.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        head = "\r\n".join(lines).encode("latin-1", errors="replace") + b"\r\n\r\n"
        return head + self.body if with_body else head


class HttpError(Exception):
    """A request that can't be answered.

    Attributes:
        response: What to send instead.
    """

    def __init__(self, response: Response) -> None:
        self.response = response
        super().__init__(response.body.decode(errors="replace"))


def sentence(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """A response that says one thing to people."""
    return Response(status, f"{text}\n".encode(errors="backslashreplace"), TEXT, headers or {})


def parse_head(head: bytes) -> HttpRequest:
    """Reads a request line and headers, up to and with the empty line.

    Raises:
        HttpError: This is no HTTP/1 request (400), its first line is too long (414), it has too many or too long
            headers (431), or it is of another version (505).
    """
    line, _, rest = head.partition(b"\r\n")
    if len(line) > _LONGEST_LINE:
        raise HttpError(sentence(414, f"The request line has {len(line)} bytes; valid are at most {_LONGEST_LINE}."))
    words = line.decode("latin-1").split(" ")
    version = _VERSION.fullmatch(words[-1])
    if len(words) != 3 or version is None or _METHOD.fullmatch(words[0]) is None:
        raise HttpError(sentence(400, "This is no HTTP request; valid is for example `GET /metrics HTTP/1.1`."))
    if version.group(1) != "1":
        raise HttpError(sentence(505, f"The version is {words[2]}; valid is HTTP/1.1."))
    try:
        headers = parse_headers(io.BytesIO(rest))
    except HTTPException as error:
        raise HttpError(sentence(431, f"The headers can't be read: {error}.")) from error
    try:
        target = urlsplit(words[1])
        query = parse_qs(target.query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
    except ValueError as error:
        raise HttpError(sentence(400, f"The address of the request can't be read: {error}.")) from error
    has_body = "transfer-encoding" in headers or headers.get("content-length", "0").strip() != "0"
    return HttpRequest(words[0], target.path, query, headers, has_body)


def body_size(headers: Message, most: int) -> int:
    """How many bytes the body of a request has.

    Raises:
        HttpError: It does not say (411), or it has more than `most` (413).
    """
    size = headers.get("content-length", "").strip()
    if not (size.isascii() and size.isdecimal()):
        raise HttpError(sentence(411, "The length of the body must be given."))
    if len(size) > 9 or int(size) > most:
        raise HttpError(sentence(413, f"The body has {size[:20]} bytes; valid are at most {most}."))
    return int(size)
