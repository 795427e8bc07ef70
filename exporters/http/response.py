"""Responses of the endpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

_TEXT = "text/plain; charset=utf-8"


class Response(NamedTuple):
    """Response to a request.

    Attributes:
        status: HTTP status, 200..599.
        body: Content; not sent if the method was HEAD.
        content_type: Media type of the body.
        headers: More headers.
    """

    status: int
    body: bytes
    content_type: str = _TEXT
    headers: Mapping[str, str] = {}


def sentence(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """Returns a response with one sentence for people."""
    return Response(status, f"{text}\n".encode(errors="backslashreplace"), _TEXT, headers or {})


def json_error(status: int, text: str) -> Response:
    """Returns a response with an error for a program."""
    return Response(status, json.dumps({"error": text}).encode() + b"\n", "application/json")
