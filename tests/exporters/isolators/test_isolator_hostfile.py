"""The isolator `hostfile`: what is in the file, and whose hosts it leaves alone."""

import stat

import pytest

from asd.errors import IsolationError
from asd.exporters.isolators import make_isolator
from asd.isolator import Device, IsolationOwner

HOSTS = "# rack 1\nn0 slots=8\nn1:8 # spare\n\nn2\n"
EVENT = "573d6a3ad8e8c4dba6d5d1b0ff0c5b2e"


def device(host, chip=0):
    return Device(host, f"Ascend:{chip}", chip)


@pytest.fixture
def hosts(tmp_path):
    (tmp_path / "hosts").write_text(HOSTS)
    return tmp_path / "hosts"


def test_the_host_becomes_a_comment_that_says_why_and_its_line_comes_back_as_it_was(hosts):
    isolator, out = make_isolator("hostfile", hosts=hosts), hosts.with_name("hosts.asd")
    isolator.isolate(device("n1", 3), "why", EVENT)
    isolator.isolate(device("n1", 5), "why", "e2")
    mark = f"ASD 80818C00 Ascend:3 evt-{EVENT}, Ascend:5 evt-e2"
    assert out.read_text() == HOSTS.replace("n1:8 #", f"# {mark} | n1:8 #")
    isolator.release(device("n1", 3))
    assert out.read_text() == HOSTS.replace("n1:8 #", "# ASD 80818C00 Ascend:5 evt-e2 | n1:8 #")
    isolator.release(device("n1", 5))
    assert out.read_text() == hosts.read_text() == HOSTS


def test_a_host_that_is_new_in_the_source_is_taken_in_and_one_that_is_gone_goes(hosts):
    isolator, out = make_isolator("hostfile", hosts=hosts), hosts.with_name("hosts.asd")
    isolator.isolate(device("n1"), "why", "e")
    hosts.write_text("n0\nn1\nn3\n")
    isolator.isolate(device("n0"), "why", "e")
    assert [line for line in out.read_text().splitlines() if not line.startswith("#")] == ["n3"]
    isolator.release(device("n1"))
    assert [line for line in out.read_text().splitlines() if not line.startswith("#")] == ["n1", "n3"]


def test_the_last_host_is_not_taken_out(hosts):
    isolator = make_isolator("hostfile", hosts=hosts)
    for name in ("n0", "n1"):
        isolator.isolate(device(name), "why", "e")
    with pytest.raises(IsolationError, match="hosts.asd") as caught:
        isolator.isolate(device("n2"), "why", "e")
    assert not caught.value.retry
    assert isolator.held(device("n2")) is IsolationOwner.FREE


def test_a_host_that_has_left_the_source_stays_out_until_it_is_given_back(hosts):
    isolator, out = make_isolator("hostfile", hosts=hosts), hosts.with_name("hosts.asd")
    isolator.isolate(device("n1"), "why", "e")
    hosts.write_text("n0\nn2\n")
    isolator.isolate(device("n0"), "why", "e")
    hosts.write_text("n0\nn1\nn2\n")
    assert isolator.held(device("n1")) is IsolationOwner.OURS
    isolator.release(device("n1"))
    assert out.read_text() == "# ASD 80818C00 Ascend:0 evt-e | n0\nn1\nn2\n"
    hosts.write_text(out.read_text())
    with pytest.raises(IsolationError, match="has no host 'n0'"):  # a comment of the source is no mark
        isolator.held(device("n0"))


def test_the_output_can_be_read_by_whoever_can_read_the_source(hosts):
    hosts.chmod(0o644)
    make_isolator("hostfile", hosts=hosts).isolate(device("n1"), "why", "e")
    assert stat.S_IMODE(hosts.with_name("hosts.asd").stat().st_mode) == 0o644


@pytest.mark.parametrize(("text", "said"), [(HOSTS, "'n7'; it has n0, n1, n2"), ("n0\n[rack]\n", r"'\[rack\]'; ")])
def test_what_is_wrong_with_the_source_is_told_with_what_is_in_it(hosts, text, said):
    hosts.write_text(text)
    with pytest.raises(IsolationError, match=said):
        make_isolator("hostfile", hosts=hosts).held(device("n7"))
