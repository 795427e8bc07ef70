"""Pushing to a Pushgateway: what leaves, and what is said when it can't."""

import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge

from asd.errors import ConfigError
from asd.exporters.outlets.pushgateway import Pushgateway, push
from tests.support.ports import free_port


class _Recorder(BaseHTTPRequestHandler):
    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.server.requests.append((self.command, self.path, body))
        self.send_response(self.server.code)
        self.end_headers()
        self.wfile.write(self.server.answer)

    do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815 - the names of http.server

    def log_message(self, *args):
        pass


@pytest.fixture
def gateway():
    """A server that answers as told and remembers what it was asked."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Recorder)
    server.requests, server.code, server.answer = [], 202, b""
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def registry():
    """Two ranks of one run, and what belongs to neither."""
    made = CollectorRegistry()
    checks = Counter("asd_checks", "x", ("run", "node", "rank"), registry=made)
    checks.labels("a b", "n", "0").inc(10)
    checks.labels("a b", "n", "1").inc(11)
    Gauge("asd_build_info", "x", ("version",), registry=made).labels("1").set(1)
    return made


def samples(body):
    return sorted(line for line in body.splitlines() if "_total" in line and not line.startswith("#"))


def test_every_rank_is_a_group_of_its_own_and_gets_what_belongs_to_none(gateway, registry):
    Pushgateway(gateway.url).push(registry)
    assert [(method, path) for method, path, _ in gateway.requests] == [
        ("POST", f"/metrics/job/asd/node/n/rank/{rank}/run@base64/YSBi") for rank in (0, 1)
    ]
    for rank, (*_, body) in enumerate(gateway.requests):
        assert samples(body) == [f'asd_checks_total{{node="n",rank="{rank}",run="a b"}} {10 + rank}.0']
        assert 'asd_build_info{version="1"} 1.0' in body


def test_at_the_end_every_group_that_was_pushed_is_deleted_once(gateway, registry):
    pushgateway = Pushgateway(gateway.url)
    pushgateway.push(registry)
    pushgateway.push(registry)
    del gateway.requests[:]
    pushgateway.delete()
    pushgateway.delete()
    assert [(method, path) for method, path, _ in gateway.requests] == [
        ("DELETE", f"/metrics/job/asd/node/n/rank/{rank}/run@base64/YSBi") for rank in (0, 1)
    ]


def test_an_empty_registry_is_no_request(gateway):
    Pushgateway(gateway.url).push(CollectorRegistry())
    assert gateway.requests == []


def test_a_group_of_the_callers_choice(gateway, registry):
    push(gateway.url, registry, {"instance": "n"})
    ((method, path, body),) = gateway.requests
    assert (method, path) == ("POST", "/metrics/job/asd/instance/n")
    assert len(samples(body)) == 2


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:9091", "ftp://x", "http://", "http://x:99999", "http://x:0", "http://[::1"]
)
def test_an_address_that_is_none_is_refused_before_anything_is_sent(url):
    with pytest.raises(ConfigError, match="--push .* it must be an http or https address such as"):
        Pushgateway(url)
    with pytest.raises(ConfigError, match="--push"):
        push(url, CollectorRegistry(), {})


def test_a_refusal_is_told_with_the_gateways_own_words(gateway, registry):
    gateway.code, gateway.answer = 400, b"pushed metrics are invalid or inconsistent.\n" + b"x" * 1000
    with pytest.raises(ConnectionError) as error:
        push(gateway.url, registry, {})
    sentence = str(error.value)
    assert sentence.startswith(
        f"the metrics can't be pushed to {gateway.url}: it answered 400 Bad Request: pushed metrics are invalid"
    )
    assert len(sentence) < 400


def test_a_gateway_that_is_not_there_is_one_clear_sentence(registry):
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(ConnectionError) as error:
        Pushgateway(url).push(registry)
    assert str(error.value) == f"the metrics can't be pushed to {url}: Connection refused"


def test_a_gateway_that_never_answers_holds_the_agent_no_longer_than_the_timeout(registry):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConnectionError) as error:
            Pushgateway(url, timeout=0.2).push(registry)
    assert str(error.value) == f"the metrics can't be pushed to {url}: it did not answer in time"


def test_an_answer_that_is_no_http_is_one_clear_sentence(registry):
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"

        def answer():
            with server.accept()[0] as connection:
                connection.recv(1 << 16)
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ConnectionError, match=f"the metrics can't be pushed to {url}: .*SSH-2.0"):
            push(url, registry, {})
        thread.join()


def test_a_group_that_could_not_be_deleted_is_tried_again(gateway, registry):
    pushgateway = Pushgateway(gateway.url)
    pushgateway.push(registry)
    gateway.code = 503
    with pytest.raises(ConnectionError, match="can't be deleted: it answered 503"):
        pushgateway.delete()
    gateway.code = 202
    del gateway.requests[:]
    pushgateway.delete()
    assert [method for method, *_ in gateway.requests] == ["DELETE", "DELETE"]


def test_the_caller_can_go_on_after_a_failure(gateway, registry):
    pushgateway = Pushgateway(gateway.url)
    gateway.code = 500
    with contextlib.suppress(ConnectionError):
        pushgateway.push(registry)
    gateway.code = 202
    pushgateway.push(registry)
    assert len(gateway.requests) == 3
