"""Who holds the Lease: one at a time, the next when it ends, and nobody for longer than it was renewed."""

import copy
import os
import subprocess
import sys
import threading
import time

import pytest

from asd import ConfigError
from asd.exporters.kubernetes.lease import ANNOTATION, KubeLease

PATH = "/apis/coordination.k8s.io/v1/namespaces/asd/leases/handler"


@pytest.fixture
def lease(api, clock):
    return lambda name: KubeLease("asd/handler", api, name, clock)


def tries(one, clock, after=2.0):
    """What a lease does every two seconds."""
    clock.now += after
    one._try()
    return one.acts


def test_the_first_one_holds_it_and_the_second_stands_by(lease, clock, kube):
    one, two = lease("one"), lease("two")
    assert not one.acts
    assert (tries(one, clock), tries(two, clock), tries(one, clock), tries(two, clock)) == (True, False, True, False)
    assert (one.holder, two.holder) == ("one", "one")
    spec = kube.objects[PATH]["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("one", 15, 1)


def test_one_that_does_not_renew_stops_before_another_may_begin(lease, clock):
    one, two = lease("one"), lease("two")
    began = clock.now + 2.0
    tries(one, clock)
    tries(two, clock, 0.0)
    stopped = None
    while not two.acts:
        clock.now += 0.5
        if stopped is None and not one.acts:
            stopped = clock.now
        tries(two, clock, 0.0)
    assert stopped == began + 10.0
    assert clock.now == began + 15.0
    assert two.holder == "two"
    assert not tries(one, clock)
    assert one.holder == "two"


def test_a_renewal_counts_from_when_it_was_asked_for_not_from_when_it_was_answered(lease, clock, kube):
    one = lease("one")
    tries(one, clock)

    def slow(_path):
        clock.now += 9.0

    kube.meanwhile = slow
    assert tries(one, clock)
    kube.meanwhile = None
    clock.now += 1.0
    assert not one.acts


def test_of_two_that_try_at_the_same_time_the_server_takes_one(lease, clock, kube, monkeypatch):
    one, two = lease("one"), lease("two")

    def put(wanted, put=one._put):
        monkeypatch.setattr(one, "_put", put)
        assert tries(two, clock, 0.0)
        return put(wanted)

    monkeypatch.setattr(one, "_put", put)
    assert not tries(one, clock)
    assert two.acts
    assert kube.objects[PATH]["spec"]["holderIdentity"] == "two"


def test_what_is_left_reaches_the_next_one_and_only_the_holder_may_leave_it(lease, clock, kube):
    one, two = lease("one"), lease("two")
    tries(one, clock)
    assert one.confirm("abc")
    assert not two.confirm("xyz")
    tries(two, clock, 0.0)
    assert two.record == "abc"
    one.leave("def")
    tries(one, clock)
    clock.now += 15.1
    tries(two, clock, 0.0)
    assert not two.acts  # it has changed since two last looked
    tries(two, clock, 15.1)
    assert two.acts
    assert two.record == "def"
    assert not one.confirm("late")
    assert kube.objects[PATH]["metadata"]["annotations"][ANNOTATION] == "def"


def test_one_whose_clock_stood_still_while_another_took_over_is_refused_by_the_server(lease, clock, kube, api):
    still = type(clock)()
    one, two = KubeLease("asd/handler", api, "one", still), lease("two")
    tries(one, still)
    tries(two, clock)
    tries(two, clock, 15.1)
    assert one.acts  # it can't know
    assert two.acts
    assert not one.confirm("forged")
    assert not one.acts
    assert kube.objects[PATH]["metadata"]["annotations"][ANNOTATION] == ""


def test_what_others_wrote_on_the_lease_stays(lease, clock, kube):
    one = lease("one")
    tries(one, clock)
    changed = copy.deepcopy(kube.objects[PATH])
    changed["metadata"]["labels"] = {"team": "x"}
    changed["metadata"]["annotations"]["note"] = "y"
    kube.put(PATH, changed)
    assert tries(one, clock)
    assert kube.objects[PATH]["metadata"]["labels"] == {"team": "x"}
    assert kube.objects[PATH]["metadata"]["annotations"]["note"] == "y"


@pytest.mark.parametrize("mode", [401, 403, 409, 500, "garbage", "html", "cut", "hang"])
def test_a_server_that_fails_takes_it_from_nobody_until_the_deadline(lease, clock, kube, mode):
    one = lease("one")
    tries(one, clock)
    kube.mode = mode
    clock.now += 2.0
    one._try()
    assert one.acts
    assert not one.confirm("abc")
    clock.now += 8.0
    assert not one.acts
    kube.mode = None
    assert tries(one, clock)
    assert one.problem == ""


def test_given_back_it_is_free_at_once(api, kube):
    one, two = (KubeLease("asd/handler", api, name) for name in ("one", "two"))
    held = threading.Event()
    one.start(lambda: None, held.set)
    assert held.wait(30)
    one.close()
    assert not one.acts
    assert kube.objects[PATH]["spec"]["holderIdentity"] == ""
    two._try()
    assert two.acts


@pytest.mark.parametrize("how", ["refused", "taken by hand"])
def test_one_that_can_not_renew_is_told_at_once(api, kube, monkeypatch, how):
    monkeypatch.setattr("asd.exporters.kubernetes.lease._DEADLINE_SECONDS", 0.5)
    monkeypatch.setattr("asd.exporters.kubernetes.lease._RENEW_SECONDS", 0.1)
    one, held, lost = KubeLease("asd/handler", api), threading.Event(), threading.Event()
    one.start(lost.set, held.set)
    assert held.wait(30)
    if how == "refused":
        kube.mode = 500
    else:
        with kube.lock:
            taken = copy.deepcopy(kube.objects[PATH])
            taken["spec"]["holderIdentity"] = "two"
            kube.put(PATH, taken)
    assert lost.wait(30)
    assert not one.acts
    began = time.monotonic()
    one.close()
    assert time.monotonic() - began < 10
    assert how == "refused" or kube.objects[PATH]["spec"]["holderIdentity"] == "two"


def test_a_handler_that_can_not_work_gives_it_to_another_one(kube, kubeconfig, tmp_path):
    kube.meanwhile = lambda _path: (tmp_path / "h.sqlite.lock").unlink(missing_ok=True)  # it can keep nothing
    code = "import asd.cli.act.handler as handler; handler._UNABLE_SECONDS = 0.1; import asd.cli; exit(asd.cli.main())"
    command = f"handler --run-dir {tmp_path} --state {tmp_path}/h.sqlite --lease asd/handler".split()
    environ = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    assert subprocess.run([sys.executable, "-c", code, *command], env=environ, timeout=60).returncode == 1
    assert kube.objects[PATH]["spec"]["holderIdentity"] == ""


@pytest.mark.parametrize("place", ["", "asd", "asd/", "/x", "asd/X", "a/b/c", "asd/-x"])
def test_another_form_is_refused(api, place):
    with pytest.raises(ConfigError, match="it must be NAMESPACE/NAME"):
        KubeLease(place, api)
