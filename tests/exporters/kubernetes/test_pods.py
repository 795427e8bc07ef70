"""Agents and jobs that are pods: which count, and what is said when the API server does not answer."""

import pytest

from asd import ConfigError
from asd.exporters.kubernetes.pods import JobPods, PodTargets
from asd.handler.inputs.targets import Target

LABELS = {"app": "asd-agent"}


@pytest.fixture
def look(api, clock):
    source = PodTargets("asd/app=asd-agent:9464", api, clock)

    def look(after=10.0):
        clock.now += after
        return source.look()

    look.source = source
    return look


def test_each_pod_with_the_labels_is_an_agent_of_its_node(kube, look):
    kube.pod("asd", "a1", "node7", "10.0.0.7", LABELS)
    kube.pod("asd", "a2", "node8", "fd00::8", {**LABELS, "more": "x"})
    kube.pod("asd", "other", "node9", "10.0.0.9", {"app": "else"})
    kube.pod("default", "a3", "node9", "10.0.0.9", LABELS)
    assert look() == [Target("10.0.0.7", 9464, "node7", "node7"), Target("fd00::8", 9464, "node8", "node8")]


def test_several_labels_and_another_port_may_be_asked_for(kube, api):
    kube.pod("asd", "a1", "node7", "10.0.0.7", {"app.kubernetes.io/name": "asd", "part": "agent"})
    kube.pod("asd", "a2", "node8", "10.0.0.8", {"app.kubernetes.io/name": "asd"})
    source = PodTargets("asd/app.kubernetes.io/name=asd,part=agent:1234", api)
    assert source.look() == [Target("10.0.0.7", 1234, "node7", "node7")]
    assert PodTargets("asd/part=agent", api).look() == [Target("10.0.0.7", 9464, "node7", "node7")]


def test_pods_come_and_go_within_ten_seconds(kube, look):
    kube.pod("asd", "a1", "node7", "10.0.0.7", LABELS)
    assert [target.node for target in look()] == ["node7"]
    kube.pod("asd", "a2", "node8", "10.0.0.8", LABELS)
    assert [target.node for target in look(9.9)] == ["node7"]
    assert [target.node for target in look(0.2)] == ["node7", "node8"]
    kube.pod("asd", "a1", "node7", "10.0.0.7", LABELS, deletionTimestamp="2026-11-25T00:00:00Z")
    kube.pod("asd", "a2", "node8", "10.0.0.8", LABELS, phase="Failed")
    assert look() == []


def test_a_thousand_pods_are_all_found(kube, look):
    for number in range(1000):
        kube.pod("asd", f"a{number}", f"n{number}", f"10.0.{number // 250}.{number % 250}", LABELS)
    assert len({target.node for target in look()}) == 1000


def test_a_pod_that_gets_no_address_in_a_minute_is_an_agent_that_cannot_be_reached(kube, look):
    kube.pod("asd", "a1", "node7", "", LABELS, phase="Pending")
    kube.pod("asd", "a2", "", "", LABELS, phase="Pending")
    assert look() == []
    assert look(59.0) == []
    assert [(target.node, target.away) for target in look(11.0)] == [
        ("node7", "its pod a1 is Pending and has no address"),
        ("", "its pod a2 is Pending and has no node"),
    ]
    kube.pod("asd", "a1", "node7", "10.0.0.7", LABELS)
    assert look()[0] == Target("10.0.0.7", 9464, "node7", "node7")


@pytest.mark.parametrize("mode", [401, 403, 500, "garbage", "html", "cut", "hang"])
def test_while_the_server_does_not_say_the_agents_stay_as_they_were(kube, look, mode):
    kube.pod("asd", "a1", "node7", "10.0.0.7", LABELS)
    before = look()
    kube.mode = mode
    assert look() == before
    assert look.source.problem.startswith("the agents are unchanged")
    kube.mode = None
    assert look() == before
    assert look.source.problem == ""


@pytest.mark.parametrize("place", ["", "asd", "asd/", "asd/app", "/app=x", "asd/app=x:0", "asd/app=x:70000", "a b/c=d"])
def test_another_form_is_refused(api, place):
    with pytest.raises(ConfigError, match="kubernetes:NAMESPACE/LABEL=VALUE"):
        PodTargets(place, api)


def test_a_job_runs_where_the_pods_with_its_name_are_in_whatever_namespace_or_those_named(kube, api, clock):
    jobs, few = JobPods("asd.mindspore.org/run", api, clock), JobPods("asd.mindspore.org/run@b,c", api, clock)
    assert (jobs.look(), jobs.hosts("llama")) == ([], ())
    for number, (namespace, run) in enumerate([("a", "llama"), ("b", "llama"), ("a", "bert")]):
        kube.pod(namespace, f"p{number}", f"node{number}", "", {"asd.mindspore.org/run": run})
    kube.pod("a", "waits", "", "", {"asd.mindspore.org/run": "llama"})
    kube.pod("a", "other", "node9", "", {"app": "llama"})
    assert (jobs.look(), jobs.hosts("llama")) == ([], ())  # asked a moment ago
    clock.now += 10.0
    assert jobs.look() == few.look()
    assert (jobs.hosts("llama"), jobs.hosts("bert"), few.hosts("llama")) == ({"node0", "node1"}, {"node2"}, {"node1"})
    kube.close()
    clock.now += 10.0
    jobs.look()
    assert jobs.hosts("bert") == {"node2"}
    assert jobs.problem.startswith("the jobs are unchanged")


def test_what_is_no_label_of_jobs_is_refused(api):
    with pytest.raises(ConfigError, match="--jobs .*kubernetes:a=b"):
        JobPods("a=b", api)
