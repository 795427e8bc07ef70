"""The isolator `clusterd`: the schema of its messages, rule by rule, and how faults come and go in them."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isolator_engines import ConfigMapEngine
from kube_server import TOKEN

from asd.errors import IsolationError
from asd.exporters.isolators.clusterd.fault_list import latest, with_occurrence, with_recovery
from asd.exporters.isolators.public_fault import registered, validate
from asd.isolator import Device

NOW = 1_795_268_420.25
GOOD = {
    "id": "asd-12345",
    "timestamp": 1795268420250,
    "version": "1.0",
    "resource": "asd",
    "faults": [
        {
            **{"faultId": "asd-67890", "faultType": "NPU", "faultCode": "020011001", "faultTime": 1795268420250},
            **{"assertion": "occur", "faultLocation": {"code": "80818C00"}, "description": "80818C00 three strikes"},
            "influence": [{"nodeName": "n0", "deviceIds": [3]}],
        }
    ],
}
FAULT, NODE = ("faults", 0), ("faults", 0, "influence", 0)
MISSING = object()


def changed(path, value):
    message = copy.deepcopy(GOOD)
    *way, last = path
    place = message
    for step in way:
        place = place[step]
    if value is MISSING:
        del place[last]
    else:
        place[last] = value
    return message


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (("id",), ["a" * 8, "a" * 128, "A.b_c-d1"]),
        (("timestamp",), [1735689600000]),
        ((*FAULT, "assertion"), ["recover"]),
        ((*FAULT, "faultLocation"), [{}, MISSING, {"k" * 16: "v" * 128}, {str(i): "" for i in range(10)}]),
        ((*FAULT, "description"), [MISSING, "", "x" * 512, "训练 x"]),
        ((*NODE, "nodeName"), ["a" * 253, "a.b-c"]),
        ((*NODE, "deviceIds"), [list(range(32))]),
        ((*FAULT, "influence"), [[{"nodeName": "n0", "deviceIds": [0]}] * 1000]),
    ],
)
def test_what_the_rules_allow_is_valid(path, values):
    for value in values:
        validate(changed(path, value))


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (("id",), ["a" * 7, "a" * 129, "abcdefgh\n", "abcdefg h", "中文中文中文中文", 12345678, None, MISSING]),
        (("timestamp",), [1735689599999, 179526842025, 17952684202500, "1795268420250", 1.7952684e12, MISSING]),
        (("version",), ["1", "1.0\n", 1.0, MISSING]),
        (("resource",), ["ASD", "", "CCAE", None, MISSING]),
        (("faults",), [[], GOOD["faults"] * 2, [copy.deepcopy(GOOD["faults"][0]) for _ in range(101)], {}, MISSING]),
        (("extra",), ["x"]),
        ((*FAULT, "faultId"), ["a" * 7, "a/b/c/d/e", "asd-67890\n", None, MISSING]),
        ((*FAULT, "faultType"), ["npu", "", "Chip", None, MISSING]),
        ((*FAULT, "faultCode"), ["80818C00", "02001100", "020011001\n", "020011009", 20011001, MISSING]),
        ((*FAULT, "faultTime"), [0, -1, 1735689599999, "x", MISSING]),
        ((*FAULT, "assertion"), ["Occur", "", "occur\n", None, MISSING]),
        ((*FAULT, "faultLocation"), [{str(i): "" for i in range(11)}, {"k" * 17: ""}]),
        ((*FAULT, "faultLocation"), [{"k": "v" * 129}, {"k": 1}, {"k": "中" * 43}, []]),
        ((*FAULT, "influence"), [[], [{"nodeName": "n0", "deviceIds": [0]}] * 1001, {}, MISSING]),
        ((*FAULT, "description"), ["x" * 513, "two\nlines", "tab\tbed", None]),
        ((*FAULT, "more"), ["x"]),
        ((*NODE, "nodeName"), ["N0", "-n0", "n0-", "n_0", "n0\n", "a" * 254, "", None, "节点"]),
        ((*NODE, "deviceIds"), [[], list(range(33)), [32], [-1], [1, 1], ["1"], [True], [1.0], None, MISSING]),
        (NODE, [{"nodeSN": "2102", "deviceIds": [0]}, {"deviceIds": [0]}, [], "n0"]),
        (NODE, [{"nodeName": "n0", "deviceIds": [0], "x": 1}]),
    ],
)
def test_what_a_rule_forbids_is_refused_with_the_field_and_the_rule(path, values):
    for value in values:
        with pytest.raises(ValueError, match="breaks a rule") as caught:
            validate(changed(path, value))
        field = next(name for name in reversed(path) if isinstance(name, str))
        assert field in str(caught.value), value
        assert "\n" not in str(caught.value), value


def test_registering_keeps_what_was_registered_and_is_done_once():
    shipped = {"publicFaultCode": {"SeparateNPUCodes": ["020001001"]}, "publicFaultResource": ["CCAE"]}
    merged = registered(shipped)
    assert merged["publicFaultCode"]["SeparateNPUCodes"] == ["020001001", "020011001"]
    assert merged["publicFaultResource"] == ["CCAE", "asd"]
    assert registered(merged) == merged
    assert registered()["publicFaultCode"]["SeparateNPUCodes"] == ["020011001"]


def test_faults_come_and_go_with_an_id_for_each_occurrence():
    first = with_occurrence(None, "n0", 3, reason="a\nb 训", event_id="e", now=NOW)
    back = with_recovery(first, latest(first, "n0", 3)["faultId"], NOW + 1)
    again = with_occurrence(back, "n0", 3, reason="x" * 999, event_id="e" * 999, now=NOW)
    one, two = (latest(each, "n0", 3)["faultId"] for each in (first, again))
    for message in (first, back, again):
        validate(message)  # among the rest, that each id is there once
    assert [fault["assertion"] for fault in back["faults"]] == ["recover"]
    assert back["faults"][0]["faultTime"] == first["faults"][0]["faultTime"] == 1795268420250
    assert [(fault["faultId"], fault["assertion"]) for fault in again["faults"]] == [(two, "occur"), (one, "recover")]
    assert first["timestamp"] < back["timestamp"] < again["timestamp"]
    assert len({first["id"], back["id"], again["id"]}) == 3
    assert latest(back, "n0", 3)["faultId"] == one
    assert latest(back, "n0", 4) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 31)), max_size=150))
def test_any_sequence_makes_valid_messages_that_hold_exactly_what_is_out(places):
    message, out = None, {}
    for node, chip in places:
        if (node, chip) in out:
            message = with_recovery(message, out.pop((node, chip)), NOW)
        elif len(out) < 100:
            message = with_occurrence(message, f"n{node}", chip, reason="r", event_id="e", now=NOW)
            out[(node, chip)] = latest(message, f"n{node}", chip)["faultId"]
        validate(message)
        active = {fault["faultId"] for fault in message["faults"] if fault["assertion"] == "occur"}
        assert active == set(out.values())


def test_the_hundred_and_first_device_is_refused():
    message = None
    for number in range(100):
        message = with_occurrence(message, f"n{number}", 0, reason="r", event_id="e", now=NOW)
    with pytest.raises(ValueError, match="100 devices are isolated already"):
        with_occurrence(message, "n100", 0, reason="r", event_id="e", now=NOW)


@pytest.fixture
def engine(tmp_path, server):
    pytest.importorskip("lightkube")
    return ConfigMapEngine(tmp_path, server.url, TOKEN, server)


def test_the_config_map_is_what_clusterd_reads(engine):
    engine.make().isolate(Device("n0", "Ascend:3", 3), "three strikes", "e1")
    found = engine.api("GET", "/api/v1/namespaces/mindx-dl/configmaps/asd-public-fault")
    assert found["metadata"]["labels"] == {"mc-consumer-publicfault": "true"}
    assert list(found["data"]) == ["PublicFault"]
    (fault,) = json.loads(found["data"]["PublicFault"])["faults"]
    assert fault["influence"] == [{"nodeName": "n0", "deviceIds": [3]}]
    assert fault["faultLocation"] == {"code": "80818C00", "event": "e1"}
    assert fault["description"] == "80818C00 three strikes"


def test_a_config_map_that_is_none_of_ours_is_not_overwritten(engine):
    path = "/api/v1/namespaces/mindx-dl/configmaps"
    body = {"metadata": {"name": "asd-public-fault"}, "data": {"PublicFault": '{"id": "theirs"}'}}
    engine.api("POST", path, body, "application/json")
    with pytest.raises(IsolationError, match="ConfigMap mindx-dl/asd-public-fault"):
        engine.make().isolate(Device("n0", "Ascend:3", 3), "why", "e")
    assert engine.api("GET", f"{path}/asd-public-fault")["data"] == body["data"]


def test_a_clock_that_stands_before_2025_is_found_out_before_anything_is_sent(engine):
    isolator = engine.make()
    isolator._clock = lambda: 5.0
    with pytest.raises(IsolationError, match=r"1735689600000 - at `\$.*[tT]ime") as caught:
        isolator.isolate(Device("n0", "Ascend:3", 3), "why", "e")
    assert not caught.value.retry
    assert engine.message() is None


@pytest.mark.parametrize("name", ["CPU:0", "unknown", "Ascend", "Ascend:32", "Ascend:-1", "Ascend:\uff13"])
def test_a_device_that_names_no_chip_is_refused(engine, name):
    with pytest.raises(IsolationError, match="is not a chip"):
        engine.make().isolate(Device("n0", name, 0), "why", "e")
