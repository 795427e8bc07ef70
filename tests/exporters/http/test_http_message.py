"""HTTP in memory: every head is a request or a response that says why not."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd.exporters.http.http_message import HttpError, Response, parse_head, sentence


def test_a_head_is_read():
    request = parse_head(b"GET /events?rank=1&rank=%322&kind= HTTP/1.1\r\nACCEPT: a\r\nContent-Length: 0\r\n\r\n")
    assert (request.method, request.path, request.query) == ("GET", "/events", {"rank": ["1", "22"], "kind": [""]})
    assert (request.headers["accept"], request.has_body) == ("a", False)


@pytest.mark.parametrize("header", [b"Content-Length: 1", b"Content-Length: x", b"Transfer-Encoding: chunked"])
def test_a_body_is_foreseen(header):
    assert parse_head(b"GET / HTTP/1.1\r\n" + header + b"\r\n\r\n").has_body


@given(st.binary() | st.binary().map(lambda rest: b"GET /" + rest) | st.binary().map(b"GET / HTTP/1.1\r\n".__add__))
def test_any_bytes_are_a_request_or_an_answer(head):
    with contextlib.suppress(HttpError):
        parse_head(head + b"\r\n\r\n")


def test_a_response_ends_the_connection_and_tells_its_length():
    head, _, body = Response(200, b"abc", "text/x", {"A": "b"}).to_bytes().partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert (status, body) == ("HTTP/1.1 200 OK", b"abc")
    assert headers.pop("Date").endswith(" GMT")
    assert headers == {
        "Server": "asd", "Content-Type": "text/x", "Content-Length": "3", "X-Content-Type-Options": "nosniff",
        "Connection": "close", "A": "b",
    }  # fmt: skip


def test_a_sentence_may_hold_any_text():
    assert sentence(500, "训练 \udc80").body == "训练 \\udc80\n".encode()
