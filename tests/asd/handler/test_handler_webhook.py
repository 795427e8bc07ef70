"""The webhook: takes what Alertmanager sends, and nothing else."""

import http.client
import json
import threading
from dataclasses import replace

import pytest

from asd.exporters.http.webhook import start_webhook
from asd.handler import FaultHandler, NoIsolator, Policy, Store
from asd.handler.inputs.alerts import Alert, AlertBox, parse_alerts
from asd.isolator import Device


def message(*labels, **changes):
    alerts = [
        {
            "status": "firing",
            "labels": each,
            "annotations": {},
            "startsAt": "2026-01-01T00:00:00Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "",
            "fingerprint": f"f{number}",
        }
        for number, each in enumerate(labels)
    ]
    return json.dumps({"version": "4", "status": "firing", "receiver": "asd", "alerts": alerts, **changes}).encode()


@pytest.fixture
def webhook():
    box, received = AlertBox(threading.Event()), []
    box.receive = received.append
    server = start_webhook("127.0.0.1", 0, box.take)
    server.received = received
    yield server
    server.close()


def post(webhook, body, path="/", method="POST", headers=None):
    connection = http.client.HTTPConnection(webhook.url.split("/")[2], timeout=10)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"{", "not a message of Alertmanager: Expecting"),
        (b"[]", "not a message of Alertmanager: b'[]'; valid is "),
        (message(version="3"), "message of Alertmanager field version is '3'; valid is '4', as"),
        (message(alerts=[1]), "message of Alertmanager field alerts is [1]; valid is a list of at most 10000 alerts"),
        (
            b'{"version": "4", "alerts": [' + b",".join([b'{"labels": {}}'] * 10_001) + b"]}",
            "message of Alertmanager field alerts is [{'labels': {}}, ",
        ),
        (message({"a": 1}), "message of Alertmanager field alerts is [{'status': 'firing', "),
        (b"\xff\xfe", "not a message of Alertmanager: "),
    ],
)
def test_what_is_no_message_of_alertmanager_is_a_bad_request(webhook, body, sentence):
    status, text = post(webhook, body)
    assert status == 400
    assert text.startswith(sentence)
    assert webhook.received == []


def test_only_post_to_known_places_and_of_a_known_size(webhook):
    assert post(webhook, None, method="GET")[0] == 405
    assert post(webhook, message(), path="/nope")[0] == 404
    assert post(webhook, message(), path="/alerts?x=1")[0] == 200
    assert post(webhook, b"x", headers={"Content-Length": "1048577"})[0] == 400
    assert post(webhook, iter([b"1\r\nx\r\n0\r\n\r\n"]), headers={"Transfer-Encoding": "chunked"})[0] == 400


def test_an_alert_wakes_and_is_noted_only_when_the_logs_do_not_explain_it():
    wake, store = threading.Event(), Store(None)
    handler = FaultHandler(store, Policy(), NoIsolator(store), print)
    handler.know([Device("n1", "Ascend:3", 3)])
    box = AlertBox(wake)
    alerts = parse_alerts(message({"alertname": "A", "node": "n1", "id": "3"}, {"alertname": "B"}))
    box.receive(alerts)
    box.receive(alerts)
    assert wake.is_set()
    assert [note.reason for note in box.empty_into(handler)] == [
        "The alert A names device 3 of n1, of which no event log tells.",
        "The alert B names no device, of which no event log tells.",
    ]
    store.db.execute(
        "INSERT INTO strike (device, run, job, step, time, received, due, settled, event) "
        "VALUES (1, 'r', 'r', 1, 0, 0, 0, 1, '')"
    )
    box.receive([replace(alerts[0], fingerprint="new"), replace(alerts[1], fingerprint="gone", status="resolved")])
    assert box.empty_into(handler) == []


def test_a_flood_of_alerts_is_taken_in_a_part_at_a_time():
    wake, store = threading.Event(), Store(None)
    handler = FaultHandler(store, Policy(), NoIsolator(store), print)
    box = AlertBox(wake)
    box.receive([Alert({}, str(number)) for number in range(5000)])
    counts = []
    while wake.is_set():
        wake.clear()
        counts.append(len(box.empty_into(handler)))
    assert counts == [200] * 5
