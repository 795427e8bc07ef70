"""The isolator `kubernetes`: what it sends, what it leaves as it is, and who comes before it."""

import itertools
import json
import logging
import threading

import pytest

pytest.importorskip("lightkube")

from isolator_engines import ONE, TWO, KubeEngine
from kube_server import THEIRS, TOKEN, RefusedError

from asd.errors import IsolationError
from asd.isolator import Device, IsolationOwner

EVENT = "573d6a3ad8e8c4dba6d5d1b0ff0c5b2e"
OURS = {"key": "asd.mindspore.org/silent-data-corruption", "value": "80818C00", "effect": "NoSchedule"}


@pytest.fixture
def engine(server, tmp_path):
    return KubeEngine(tmp_path, server.url, TOKEN, server)


def condition(node):
    return next((item for item in node["status"]["conditions"] if item["type"] == "AsdSilentCorruption"), None)


def test_taint_cordon_and_mark_are_one_request_between_condition_and_event(server, engine):
    engine.make().isolate(ONE, "three strikes", EVENT)
    changes = [(method, path) for method, path in server.requests if method != "GET"]
    node = "/api/v1/nodes/n0"
    assert changes == [("PATCH", f"{node}/status"), ("PATCH", node), ("POST", "/api/v1/namespaces/default/events")]


def test_the_taints_of_others_and_everything_else_of_the_node_stay(server, engine):
    before = json.loads(json.dumps(engine.node()))
    isolator = engine.make()
    isolator.isolate(ONE, "three strikes", EVENT)
    assert engine.node()["spec"] == {"taints": [THEIRS, OURS], "unschedulable": True, "providerID": "p"}
    isolator.release(ONE)
    after = engine.node()
    assert (after["spec"], after["metadata"]["labels"]) == (before["spec"], before["metadata"]["labels"])
    assert "annotations" not in after["metadata"]


def test_the_taint_can_end_what_runs(server, tmp_path):
    KubeEngine(tmp_path, server.url, TOKEN, server, effect="NoExecute").make().isolate(ONE, "why", EVENT)
    assert engine_taints(server) == [THEIRS, {**OURS, "effect": "NoExecute"}]


def engine_taints(server):
    return server.objects["/api/v1/nodes/n0"]["spec"]["taints"]


def test_the_condition_follows_the_devices_and_keeps_the_time_of_its_last_change(server, engine):
    times = itertools.count(100.0, 100.0)
    isolator = engine.make()
    isolator._clock = lambda: next(times)
    isolator.isolate(ONE, "why", "e1")
    first = condition(engine.node())
    isolator.isolate(TWO, "why", "e2")
    second = condition(engine.node())
    assert second["message"] == "80818C00: faulty devices: Ascend:3 (evt-e1), Ascend:4 (evt-e2)"
    assert second["lastTransitionTime"] == first["lastTransitionTime"] != second["lastHeartbeatTime"]
    isolator.release(ONE)
    isolator.release(TWO)
    last = condition(engine.node())
    assert (last["status"], last["reason"], last["message"]) == ("False", "NoDeviceIsolated", "no device is isolated")
    assert last["lastTransitionTime"] != first["lastTransitionTime"]


def test_an_event_that_can_not_be_made_is_logged_and_the_device_is_out_all_the_same(server, engine, caplog):
    original = server._create
    server._create = lambda *words: (_ for _ in ()).throw(_refused()) if words[2] == "events" else original(*words)
    with caplog.at_level(logging.WARNING, "asd.isolator"):
        engine.make().isolate(ONE, "why", EVENT)
    assert "answered 403: no events for you" in caplog.text
    assert engine.make().held(ONE) is IsolationOwner.OURS


def _refused():
    return RefusedError(403, "Forbidden", "no events for you")


def test_a_change_that_somebody_else_came_before_is_made_on_what_they_left(server, engine):
    def label(path, left=[3]):  # noqa: B006 - counts over calls
        if path == "/api/v1/nodes/n0" and left[0]:
            left[0] -= 1
            node = json.loads(json.dumps(server.objects[path]))
            node["spec"]["taints"].append({"key": f"late-{left[0]}", "effect": "NoSchedule"})
            server.put(path, node)

    server.meanwhile = label
    engine.make().isolate(ONE, "why", EVENT)
    assert [taint["key"] for taint in engine_taints(server)] == ["theirs", "late-2", "late-1", "late-0", OURS["key"]]


def test_a_node_that_is_cordoned_between_reading_and_writing_is_left_alone(server, engine):
    def cordon(path):
        server.meanwhile = None
        node = json.loads(json.dumps(server.objects["/api/v1/nodes/n0"]))
        node["spec"]["unschedulable"] = True
        server.put("/api/v1/nodes/n0", node)

    server.meanwhile = cordon
    with pytest.raises(IsolationError, match="else cordoned node n0"):
        engine.make().isolate(ONE, "why", EVENT)
    node = engine.node()
    assert (engine_taints(server), condition(node)["status"]) == ([THEIRS], "False")
    assert "annotations" not in node["metadata"]


def test_a_node_that_never_stands_still_is_given_up_for_now(server, engine):
    def touch(path):
        node = json.loads(json.dumps(server.objects["/api/v1/nodes/n0"]))
        node["metadata"]["labels"]["n"] = str(server.version)
        server.put("/api/v1/nodes/n0", node)

    server.meanwhile = touch
    with pytest.raises(IsolationError, match="changed by somebody else 10 times") as caught:
        engine.make().isolate(ONE, "why", EVENT)
    assert caught.value.retry
    assert engine_taints(server) == [THEIRS]


def test_handlers_that_work_at_once_lose_no_mark(server, engine):
    devices = [Device("n0", f"Ascend:{number}", number) for number in range(4)]
    isolators = [engine.make() for _ in devices]
    for isolator in isolators:
        isolator._api._timeout = 10
    for action in ("isolate", "release"):
        failures = []

        def work(isolator, device, action=action, failures=failures):
            try:
                getattr(isolator, action)(device, *(("why", "e") if action == "isolate" else ()))
            except IsolationError as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=pair) for pair in zip(isolators, devices, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        held = {engine.make().held(device) for device in devices}
        assert held == {IsolationOwner.OURS if action == "isolate" else IsolationOwner.FREE}
    assert engine_taints(server) == [THEIRS]


def test_who_uncordons_by_hand_gives_all_devices_back(server, engine):
    isolator = engine.make()
    isolator.isolate(ONE, "why", "e1")
    isolator.isolate(TWO, "why", "e2")
    engine.api("PATCH", "/api/v1/nodes/n0", {"spec": {"unschedulable": None, "taints": [THEIRS]}})
    assert (isolator.held(ONE), isolator.held(TWO)) == (IsolationOwner.FREE, IsolationOwner.FREE)
    isolator.isolate(TWO, "why", "e3")
    assert (isolator.held(ONE), isolator.held(TWO)) == (IsolationOwner.FREE, IsolationOwner.OURS)
    assert condition(engine.node())["message"] == "80818C00: faulty devices: Ascend:4 (evt-e3)"
    engine.api("PATCH", "/api/v1/nodes/n0", {"spec": {"taints": [THEIRS]}})  # a cordon without our taint is no mark
    assert isolator.held(TWO) is IsolationOwner.OTHERS
    isolator.release(TWO)
    assert engine.node()["spec"]["unschedulable"]


def test_a_mark_that_is_none_of_ours_is_an_error_and_not_overwritten(server, engine):
    annotation = {"asd.mindspore.org/isolated-by": "me, by hand"}
    engine.api("PATCH", "/api/v1/nodes/n0", {"metadata": {"annotations": annotation}})
    for call in (engine.make().held, engine.make().release, lambda device: engine.make().isolate(device, "why", "e")):
        with pytest.raises(IsolationError, match="me, by hand"):
            call(ONE)
    assert engine.node()["metadata"]["annotations"] == annotation


def test_a_token_that_is_renewed_is_used_without_a_new_start(server, tmp_path):
    wrong = KubeEngine(tmp_path, server.url, "wrong", server)
    isolator = wrong.make()
    with pytest.raises(IsolationError, match="answered 401") as caught:
        isolator.held(ONE)
    assert not caught.value.retry
    KubeEngine(tmp_path, server.url, TOKEN, server)  # writes the same kubeconfig
    assert isolator.held(ONE) is IsolationOwner.FREE


def test_a_kubeconfig_that_is_half_written_is_told_and_tried_again(server, engine, tmp_path):
    isolator = engine.make()
    kubeconfig = next(path for path in tmp_path.iterdir() if path.is_file())
    text = kubeconfig.read_text()
    kubeconfig.write_text("clusters: [")
    with pytest.raises(IsolationError, match="reading node n0: ") as caught:
        isolator.held(ONE)
    assert caught.value.retry
    kubeconfig.write_text(text)
    assert isolator.held(ONE) is IsolationOwner.FREE
