"""The isolator `hostfile`: what is in the files, and whose entries it leaves alone."""

import json
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isolator_engines import table

from asd.errors import IsolationError
from asd.exporters.isolators import make_isolator
from asd.exporters.isolators.hostfile.host_files import ListContents, merged
from asd.exporters.isolators.hostfile.rank_table import devices_in, write_table
from asd.isolator import Device, IsolationOwner

HOSTS = "# rack 1\nn0 slots=8\nn1:8 # spare\n\nn2\n"


def device(host, chip=0):
    return Device(host, f"Ascend:{chip}", chip)


@pytest.fixture
def hosts(tmp_path):
    (tmp_path / "hosts").write_text(HOSTS)
    return tmp_path / "hosts"


def test_the_host_is_left_out_and_its_line_comes_back_as_it_was(hosts):
    isolator, out = make_isolator("hostfile", hosts=hosts), hosts.with_name("hosts.asd")
    isolator.isolate(device("n1"), "why", "e1")
    assert out.read_text() == "n0 slots=8\nn2\n"
    isolator.release(device("n1"))
    assert out.read_text() == "n0 slots=8\nn1:8 # spare\nn2\n"
    assert hosts.read_text() == HOSTS


def test_the_record_says_who_and_why(hosts):
    make_isolator("hostfile", hosts=hosts).isolate(device("n1", 3), "three\nstrikes", "e1")
    (entry,) = json.loads(hosts.with_name("hosts.asd.isolated.json").read_text())["out"].values()
    assert entry == {
        "host": "n1",
        "device": "Ascend:3",
        "event": "e1",
        "reason": "three strikes",
        "returning": False,
        "entries": {str(hosts.with_name("hosts.asd")): ["n1"]},
    }


def test_exactly_the_device_leaves_a_rank_table_and_ranks_are_counted_anew(tmp_path):
    everything = [(server, chip) for server in ("a", "b") for chip in range(3)]
    (tmp_path / "t.json").write_text(json.dumps(table(everything)))
    isolator = make_isolator("hostfile", rank_table=tmp_path / "t.json", rank_table_out=tmp_path / "out.json")
    isolator.isolate(device("a", 1), "why", "e")
    left = json.loads((tmp_path / "out.json").read_text())
    devices = [
        (server["server_id"], one["device_id"], one["rank_id"])
        for server in left["server_list"]
        for one in server["device"]
    ]
    assert devices == [("a", "0", "0"), ("a", "2", "1"), ("b", "0", "2"), ("b", "1", "3"), ("b", "2", "4")]
    assert left["server_list"][0]["device"][1]["device_ip"] == "10.0.0.2"
    isolator.isolate(device("ip-b", 0), "why", "e")
    isolator.isolate(device("b", 1), "why", "e")
    isolator.isolate(device("b", 2), "why", "e")
    assert json.loads((tmp_path / "out.json").read_text())["server_count"] == "1"
    for host, chip in (("b", 2), ("ip-b", 0), ("b", 1), ("a", 1)):
        isolator.release(device(host, chip))
    assert json.loads((tmp_path / "out.json").read_text()) == table(everything)


def test_what_others_removed_or_added_stays_so(hosts):
    isolator, out = make_isolator("hostfile", hosts=hosts), hosts.with_name("hosts.asd")
    isolator.isolate(device("n1"), "why", "e")
    out.write_text("n0 slots=4\nn9\n")
    assert isolator.held(device("n2")) is IsolationOwner.OTHERS
    isolator.release(device("n1"))
    assert out.read_text() == "n0 slots=4\nn1:8 # spare\nn9\n"


def test_a_host_that_is_new_in_the_source_is_taken_in_and_one_that_is_gone_goes(hosts):
    isolator, out = make_isolator("hostfile", hosts=hosts), hosts.with_name("hosts.asd")
    isolator.isolate(device("n1"), "why", "e")
    hosts.write_text("n0\nn1\nn3\n")
    isolator.isolate(device("n0"), "why", "e")
    assert out.read_text() == "n3\n"
    isolator.release(device("n1"))
    assert out.read_text() == "n1\nn3\n"


def test_the_last_host_is_not_taken_out(hosts):
    isolator = make_isolator("hostfile", hosts=hosts)
    for name in ("n0", "n1"):
        isolator.isolate(device(name), "why", "e")
    with pytest.raises(IsolationError, match="nothing would be left in .*hosts.asd") as caught:
        isolator.isolate(device("n2"), "why", "e")
    assert not caught.value.retry
    assert isolator.held(device("n2")) is IsolationOwner.FREE


def test_a_device_that_has_left_the_source_can_still_be_given_back(hosts):
    isolator = make_isolator("hostfile", hosts=hosts)
    isolator.isolate(device("n1"), "why", "e")
    hosts.write_text("n0\nn2\n")
    assert isolator.held(device("n1")) is IsolationOwner.OURS
    isolator.release(device("n1"))
    assert hosts.with_name("hosts.asd").read_text() == "n0 slots=8\nn2\n"


def test_the_output_can_be_read_by_whoever_can_read_the_source(hosts):
    hosts.chmod(0o644)
    make_isolator("hostfile", hosts=hosts).isolate(device("n1"), "why", "e")
    assert stat.S_IMODE(hosts.with_name("hosts.asd").stat().st_mode) == 0o644


def test_a_host_that_is_not_in_the_list_is_named_with_some_that_are(hosts):
    with pytest.raises(IsolationError, match="has no host 'n7'; it has n0, n1, n2"):
        make_isolator("hostfile", hosts=hosts).held(device("n7"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "valid is a JSON object with a server_list"),
        ('{"version": "1.0"}', "valid is a JSON object with a server_list"),
        ('{"version": "2.0", "server_list": []}', "version is '2.0'; valid is '1.0'"),
        ('{"version": "1.0", "server_list": [{"server_id": "a"}]}', "valid has server_id and a list of devices"),
        (
            '{"version": "1.0", "server_list": [{"server_id": "a", "device": [{"device_id": 1}]}]}',
            "valid has server_id",
        ),
        ("[" * 100_000, "can't be used"),
        (json.dumps(table([("a", 1), ("a", 1)])), "device 1 of server a is there twice"),
    ],
)
def test_what_is_no_rank_table_is_refused_with_the_reason(tmp_path, text, said):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(IsolationError, match=said):
        make_isolator("hostfile", rank_table=tmp_path / "t.json").held(device("a", 1))


names = st.sampled_from("abcdef")


@given(st.lists(names, unique=True), st.none() | st.lists(names, unique=True), st.sets(names), st.sets(names))
def test_nothing_of_ours_is_in_what_is_written_and_nothing_of_others_is_changed(source, output, base, ours):
    look = ListContents(dict.fromkeys(source, "s"), None if output is None else dict.fromkeys(output, "o"), "", None)
    made = merged(look, base, ours, ())
    assert not ours & made.keys()
    if output is not None:
        assert all(made[key] == "o" for key in set(output) & made.keys())
        assert (set(source) & base - set(output)) & made.keys() == set()
        assert set(output) - set(source) - ours - base <= made.keys()
    assert set(source) - base - ours <= made.keys()


@given(st.lists(st.tuples(names, st.integers(0, 15)), unique=True, min_size=1))
def test_a_rank_table_written_anew_says_the_same(devices):
    grouped = sorted(devices, key=lambda item: [server for server, _ in devices].index(item[0]))
    text = json.dumps(table(grouped))
    assert json.loads(write_table(devices_in(text), text)) == json.loads(text)
