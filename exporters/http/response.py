"""What a client of the endpoint gets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

_TEXT = "text/plain; charset=utf-8"


class Response(NamedTuple):
    """An answer to a request.

    Attributes:
        status: HTTP status, 200..599.
        body: Sent unless the method was HEAD.
        content_type: Media type of the body.
        headers: More headers.
    """

    status: int
    body: bytes
    content_type: str = _TEXT
    headers: Mapping[str, str] = {}


def sentence(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """A response that says one thing to people."""
    return Response(status, f"{text}\n".encode(errors="backslashreplace"), _TEXT, headers or {})


def json_error(status: int, text: str) -> Response:
    """A response that says to a program what is wrong."""
    return Response(status, json.dumps({"error": text}).encode() + b"\n", "application/json")
