"""The endpoint: what it answers, and that no client can keep it from answering the others."""

import contextlib
import gzip
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

import asd
from asd import ConfigError, Event
from asd.exporters.http import server as server_module
from asd.exporters.http import worker as worker_module
from asd.exporters.http.routes import start_server
from asd.exporters.prometheus.event_journal import EventJournal
from tests.support.events import event_maker

event = event_maker()
HEADERS = "Host: node\r\nConnection: close\r\n"
GET = f"GET /metrics HTTP/1.1\r\n{HEADERS}\r\n".encode()
POST = f"POST /events HTTP/1.1\r\n{HEADERS}".encode()


BOMB = gzip.compress(b"\0" * 50_000_000)  # 49 kB


def resident_megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class Broken:
    def collect(self):
        raise RuntimeError("the disk\nis gone")


class Endpoint:
    def __init__(self):
        self.registry = CollectorRegistry()
        self.events = []
        self.reason = ""
        self.server = None

    def start(self, **options):
        options = {"port": 0, **options}
        self.server = start_server(
            registry=self.registry, ledger_events=lambda: self.events, ready=lambda: self.reason, **options
        )
        return self.server

    def ask(self, path, method="GET", headers=None, body=None):
        connection = http.client.HTTPConnection(self.server.address, self.server.port, timeout=20)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response, response.read()

    def say(self, data):
        with socket.create_connection((self.server.address, self.server.port), timeout=20) as client:
            client.sendall(data)
            return b"".join(iter(lambda: client.recv(65536), b""))


@pytest.fixture
def endpoint():
    endpoint = Endpoint()
    yield endpoint
    if endpoint.server is not None:
        endpoint.server.close()


@pytest.fixture
def served(endpoint):
    gauge = Gauge("asd_step", "The last judged step.", ["run"], registry=endpoint.registry)
    gauge.labels('a "quoted"\n训练\\').set(7)
    counter = Counter("asd_checks", "Values judged.", registry=endpoint.registry)
    counter.inc(3, {"event_id": "e1"})
    endpoint.start()
    return endpoint


def test_a_plain_scrape_gets_the_text_format(served):
    response, body = served.ask("/metrics")
    assert (response.status, response.headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    families = {family.name: family.samples for family in parse_text(body.decode())}
    assert families["asd_step"][0].labels == {"run": 'a "quoted"\n训练\\'}
    assert families["asd_checks"][0].value == 3
    assert (response.headers["Server"], response.headers["X-Content-Type-Options"]) == ("asd", "nosniff")


def test_openmetrics_with_exemplars_comes_when_it_is_accepted(served):
    accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
    response, body = served.ask("/metrics", headers={"Accept": accept})
    assert response.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in parse_openmetrics(body.decode())}
    assert families["asd_checks"].samples[0].exemplar.labels == {"event_id": "e1"}


@pytest.mark.parametrize("accept", ["", "nonsense;;=", "*/*", "é"])
def test_an_odd_accept_header_gets_the_text_format(served, accept):
    response, _ = served.ask("/metrics", headers={"Accept": accept})
    assert (response.status, response.headers["Content-Type"][:10]) == (200, "text/plain")


def test_a_scraper_that_takes_gzip_gets_it(served):
    _, plain = served.ask("/metrics")
    response, zipped = served.ask("/metrics", headers={"Accept-Encoding": "deflate, gzip;q=1.0"})
    assert response.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(zipped) == plain
    refused, _ = served.ask("/metrics", headers={"Accept-Encoding": "gzip;q=0, identity"})
    assert refused.headers["Content-Encoding"] is None


def test_head_gets_the_same_head_and_no_body(served):
    get, body = served.ask("/metrics")
    head, nothing = served.ask("/metrics", "HEAD")
    assert (head.status, head.headers["Content-Length"], nothing) == (200, str(len(body)), b"")
    assert head.headers["Content-Type"] == get.headers["Content-Type"]


@pytest.mark.parametrize("path", ["/", "/metrics/", "/%2e%2e/etc/passwd", "http://127.0.0.1/nope", "/devices"])
def test_everything_else_is_404(served, path):
    said = served.say(f"GET {path} HTTP/1.1\r\n{HEADERS}\r\n".encode())
    assert int(said.split()[1]) == 404
    assert said.endswith(b"There is nothing here; paths are /metrics, /healthz, /readyz, /events.\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get"])
@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/events"])
def test_other_methods_are_405_and_name_the_valid_ones(served, method, path):
    response, body = served.ask(path, method)
    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
    assert body == b"Valid methods are GET and HEAD.\n"


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 200000000\r\n\r\n" + b"x" * 1_000_000,
        b"Transfer-Encoding: chunked\r\n\r\n" + b"10000\r\n" + b"x" * 65536 + b"\r\n1\r\nx\r\n",
        b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB) + BOMB,
    ],
    ids=["long", "chunks", "gzip bomb"],
)
def test_a_body_that_is_too_long_is_refused_and_takes_no_memory(served, body):
    before = resident_megabytes()
    with contextlib.suppress(ConnectionError):  # it may close before all was sent
        assert served.say(POST + body).split()[1] in (b"400", b"405", b"413")
    assert resident_megabytes() - before < 20
    assert served.ask("/healthz")[0].status == 200


def test_health_and_readiness_differ(served):
    assert served.ask("/healthz")[1] == b"ok\n"
    assert served.ask("/readyz")[1] == b"ready\n"
    served.reason = "the first poll is not done"
    response, body = served.ask("/readyz")
    assert (response.status, served.reason in body.decode()) == (503, True)
    assert served.ask("/healthz")[0].status == 200


def test_a_collector_that_raises_is_500_and_harms_nothing_else(served):
    broken = Broken()
    served.registry.register(broken)
    response, body = served.ask("/metrics")
    assert (response.status, body) == (500, b"/metrics can't be answered: RuntimeError: the disk\nis gone\n")
    assert served.ask("/healthz")[0].status == 200
    served.registry.unregister(broken)
    assert served.ask("/metrics")[0].status == 200


def test_a_collector_that_hangs_fails_in_time_and_leaves_the_rest_working(endpoint, monkeypatch):
    monkeypatch.setattr(worker_module, "PATIENCE_SECONDS", 0.3)
    slow = Slow()
    endpoint.registry.register(slow)
    endpoint.start()
    try:
        response, body = endpoint.ask("/metrics")
        assert (response.status, body) == (503, b"/metrics took longer than 0.3 s.\n")
        assert endpoint.ask("/events")[0].status == 200
        assert endpoint.ask("/readyz")[0].status == 200
    finally:
        slow.release.set()


def test_events_are_cloud_events_with_the_newest_first(served):
    served.events = [event(2), event(9), event(5, reason="训练 \udc80")]
    response, body = served.ask("/events")
    assert (response.status, response.headers["Content-Type"]) == (200, "application/json")
    assert [Event.from_json(json.dumps(each)) for each in json.loads(body)] == [event(9), served.events[2], event(2)]


@pytest.mark.parametrize(
    ("data", "statuses"),
    [
        (b"\r\n\r\n", "400 closed"),
        (b"GET /metrics\r\n\r\n", "400 closed"),
        (b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", "400 closed"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", "400 closed"),  # no host
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400 closed"),
        (b"GET /" + b"a" * 500_000, "400 closed"),
        (b"GET /metrics HTTP/1.1\r\n" + b"A: b\r\n" * 100_000 + b"\r\n", "400 closed"),
        (GET.replace(b"metrics", b"metrics?" + b"a&" * 2000), "400"),
        (b"GET /healthz HTTP/1.0\r\n\r\n", "200"),
        (GET + GET, "200"),
    ],
)
def test_odd_requests_get_the_right_status(served, data, statuses):
    try:
        said = served.say(data)
    except ConnectionError:
        said = b""
    assert (said.split()[1].decode() if said else "closed") in statuses.split()
    assert served.ask("/healthz")[0].status == 200


def test_a_client_that_leaves_in_the_middle_is_no_harm(served):
    for data in (b"", b"GET /met", GET):
        client = socket.create_connection((served.server.address, served.server.port))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.sendall(data)
        client.close()
    assert served.ask("/healthz")[0].status == 200


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"", b"A"),
        (GET[:-2] + b"A: ", b"b"),
        (POST + b"Content-Length: 60000\r\n\r\n", b"b"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nb\r\n"),
    ],
    ids=["first line", "headers", "body", "chunks"],
)
def test_a_client_that_sends_a_byte_at_a_time_loses_its_place(endpoint, monkeypatch, begin, more):
    monkeypatch.setattr(server_module, "PATIENCE_SECONDS", 0.3)
    server = endpoint.start()
    started = time.monotonic()
    with (
        socket.create_connection((server.address, server.port), timeout=0.02) as client,
        contextlib.suppress(ConnectionError),
    ):
        client.sendall(begin)
        while time.monotonic() < started + 20:
            client.sendall(more)
            with contextlib.suppress(TimeoutError):
                if client.recv(1) == b"":
                    break
    assert 0.3 <= time.monotonic() - started < 10


def test_a_connection_that_is_kept_for_the_next_request_is_not_kept_for_ever(endpoint, monkeypatch):
    monkeypatch.setattr(server_module, "PATIENCE_SECONDS", 0.3)
    endpoint.start()
    begin = time.monotonic()
    assert endpoint.say(GET.replace(b"Connection: close\r\n", b"")).startswith(b"HTTP/1.1 200")
    assert 0.3 <= time.monotonic() - begin < 10


def test_a_client_that_never_reads_loses_its_place_and_holds_up_nobody(endpoint, monkeypatch):
    monkeypatch.setattr(server_module, "PATIENCE_SECONDS", 0.5)
    gauge = Gauge("asd_feature_value", "x" * 20_000_000, registry=endpoint.registry)
    gauge.set(1)
    endpoint.start()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((endpoint.server.address, endpoint.server.port))
        client.sendall(GET)
        assert endpoint.ask("/healthz")[0].status == 200
        time.sleep(1.0)
        client.settimeout(20)
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while data := client.recv(1 << 20):
                received += len(data)
        assert received < 20_000_000


@pytest.mark.parametrize("begun", [b"GET /metrics HT", b"GET /events?after=&wait=60 HTTP/1.1\r\nHost: node\r\n\r\n"])
def test_a_scrape_takes_the_place_of_the_slowest_when_slow_clients_have_all(endpoint, monkeypatch, tmp_path, begun):
    monkeypatch.setattr(server_module, "PATIENCE_SECONDS", 600.0)
    journal = EventJournal(tmp_path / "journal.sqlite")
    server = endpoint.start(journal=journal)
    place = (server.address, server.port)
    with contextlib.closing(journal), contextlib.ExitStack() as stack:
        slow = []
        for _ in range(server_module._MOST_CLIENTS):
            slow.append(stack.enter_context(socket.create_connection(place, timeout=20)))
            slow[-1].sendall(begun)
        for _ in range(2):
            assert endpoint.ask("/metrics")[0].status == 200  # in at most 20 s
        assert slow[0].recv(1) == b""
        slow[-1].sendall(b"TP/1.1\r\nHost: node\r\n\r\n" * begun.endswith(b"HT"))
        journal.add([event()])  # and who came last has kept its place
        assert slow[-1].recv(12) == b"HTTP/1.1 200"


def test_hundreds_of_scrapes_at_once_all_succeed(served):
    count = 300
    gauge = Gauge("asd_feature_value", "Value.", ["checkpoint"], registry=served.registry)
    for number in range(1000):
        gauge.labels(f"layers.{number}").set(number)
    _, expected = served.ask("/metrics")
    gate = threading.Barrier(count)

    def scrape(_):
        gate.wait(30)
        response, body = served.ask("/metrics")
        return response.status, body == expected

    before = threading.active_count()
    with ThreadPoolExecutor(count) as pool:
        scrapes = pool.map(scrape, range(count))
        most = max(threading.active_count() for _ in range(3))
        assert list(scrapes) == [(200, True)] * count
    assert most - before <= count + 2  # the server has its loop and two workers, however many ask
    assert threading.active_count() <= before + 2


def test_few_open_files_are_enough_for_many_scrapes(endpoint):
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\n"
        "from prometheus_client import CollectorRegistry; from asd.exporters.http.routes import start_server\n"
        "server = start_server(registry=CollectorRegistry(), ledger_events=list, ready=str, port=0)\n"
        "print(server.port, flush=True); sys.stdin.read()"
    )
    root = str(Path(asd.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        endpoint.server = SimpleNamespace(address="127.0.0.1", port=int(process.stdout.readline()), close=lambda: None)
        with contextlib.ExitStack() as slow, ThreadPoolExecutor(50) as pool:
            for _ in range(5):
                slow.enter_context(socket.create_connection(("127.0.0.1", endpoint.server.port)))
            answers = list(pool.map(lambda _: endpoint.ask("/metrics")[0].status, range(200)))
        process.stdin.close()
        assert answers == [200] * 200


class Slow:
    """A collector that waits until it is let go."""

    def __init__(self):
        self.begun, self.release, self.collected = threading.Event(), threading.Event(), 0

    def describe(self):
        return []

    def collect(self):
        self.collected += 1
        self.begun.set()
        self.release.wait(20)
        return []


def asked_together(endpoint, slow, paths):
    """The bodies of answers: the first is being made when the others are asked for."""
    with ThreadPoolExecutor(len(paths)) as pool:
        first = pool.submit(endpoint.ask, paths[0])
        assert slow.begun.wait(20)
        rest = [pool.submit(endpoint.ask, path) for path in paths[1:]]
        time.sleep(0.2)  # so that they arrive
        slow.release.set()
        answers = [asked.result() for asked in [first, *rest]]
    assert {response.status for response, _ in answers} == {200}
    return [body.decode() for _, body in answers]


def test_scrapes_that_come_together_share_a_collection_but_get_no_old_one(endpoint):
    slow = Slow()
    endpoint.registry.register(slow)
    endpoint.start()
    asked_together(endpoint, slow, ["/metrics"] * 9)
    assert slow.collected == 2


def test_who_ask_together_for_different_things_get_what_they_asked_for(endpoint):
    slow = Slow()
    endpoint.registry.register(slow)
    for name in ("one", "two"):
        Gauge(name, "h", registry=endpoint.registry)
    endpoint.start()
    paths = ["/metrics", *(f"/metrics?{names}" for names in ("name[]=one", "name[]=two", "name[]=one&name[]=two"))]
    _, *pages = asked_together(endpoint, slow, [*paths, "/metrics?name[]=three"])
    shown = [{family.name for family in parse_text(page)} for page in pages]
    assert shown == [{"one"}, {"two"}, {"one", "two"}, set()]


def test_it_listens_on_this_machine_only_unless_told_otherwise(endpoint):
    server = endpoint.start()
    assert (server.address, server.url) == ("127.0.0.1", f"http://127.0.0.1:{server.port}")


def test_an_ipv6_address_works_with_and_without_brackets(endpoint):
    try:
        server = endpoint.start(address="::1")
    except ConfigError as error:
        if "does not have the address" in str(error) or "not known" in str(error):
            pytest.skip("this machine has no IPv6")
        raise
    assert server.url == f"http://[::1]:{server.port}"
    assert endpoint.ask("/healthz")[0].status == 200
    server.close()
    assert endpoint.start(address="[::1]", port=server.port).port == server.port


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("192.0.2.1", "does not have the address"),
        ("no.such.host.invalid", "not known"),
        ("", "0.0.0.0"),
        ("[::1", "not known"),
        ("a\0b", "not known"),
        ("é" * 70, "not known"),
    ],
)
def test_a_wrong_address_is_one_clear_sentence(endpoint, address, said):
    with pytest.raises(ConfigError, match=said):
        endpoint.start(address=address)
    used = endpoint.start().port
    with pytest.raises(ConfigError, match=f"127.0.0.1:{used}'.* in use"):
        start_server(registry=None, ledger_events=list, ready=str, port=used)


def test_closing_frees_the_port_at_once_even_with_clients_that_hang(endpoint):
    server = endpoint.start()
    with socket.create_connection((server.address, server.port)) as client:
        client.sendall(b"GET /met")
        begin = time.monotonic()
        server.close()
        server.close()
        assert time.monotonic() < begin + 5
        assert endpoint.start(port=server.port).port == server.port


def test_its_threads_end_with_it(endpoint):
    before = set(threading.enumerate())
    server = endpoint.start()
    assert endpoint.ask("/metrics")[0].status == 200
    mine = set(threading.enumerate()) - before
    server.close()
    for thread in mine:
        thread.join(5)
    assert [thread.name for thread in mine if thread.is_alive()] == []
