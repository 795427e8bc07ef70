"""The shipped manifests agree with the programs. A real API server takes them in tests/stack/test_deployment.py."""

import argparse
import importlib
import sys
from pathlib import Path

import pytest

from asd.cli import COMMANDS
from asd.exporters.isolators.kubernetes.node_mark import TAINT

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from manifests import FOLDER, components, rendered

yaml = pytest.importorskip("yaml")
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="only the source tree has this")
JOBS = ("plain.yaml", "volcano.yaml", "kubeflow.yaml", "mindcluster.yaml")


def items(name):
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def item(kind, name, *chosen):
    """One object as it is after the components, by default those that are shipped."""
    return next(
        each for each in rendered(*(chosen or components())) if (each["kind"], each["metadata"]["name"]) == (kind, name)
    )


def pod(kind, name, *chosen):
    return item(kind, name, *chosen)["spec"]["template"]["spec"]


AGENT, HANDLER = ("DaemonSet", "asd-agent"), ("Deployment", "asd-handler")


def pods_of(job):
    """The pods of a job, of whatever kind it is."""
    found, left = [], [items(f"jobs/{job}")[0]["spec"]]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            found += [each["template"]["spec"]] if "template" in each else []
            left += [value for name, value in each.items() if name != "template"]
        elif isinstance(each, list):
            left += each
    return found


def trainings():
    """The pods of all jobs that are checked."""
    return [
        (job, each)
        for job in JOBS
        for each in pods_of(job)
        if any("asd run" in " ".join([*one["command"], *one.get("args", [])]) for one in each["containers"])
    ]


def test_every_folder_is_named_in_the_kustomization_and_every_file_in_its_own():
    text = (FOLDER / "kustomization.yaml").read_text()
    folders = [path for path in FOLDER.iterdir() if path.is_dir() and path.name != "jobs"]
    assert [path.name for path in folders if f"- {path.name}\n" not in text] == []
    for folder in folders:
        listed = items(f"{folder.name}/kustomization.yaml")[0].get("resources", [])
        assert {*listed, "kustomization.yaml"} == {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("which", [AGENT, HANDLER])
@pytest.mark.parametrize(
    "chosen", [(), ("base", "mindcluster"), ("base", "in-earnest"), ("base", "in-earnest", "monitoring", "tls")]
)
def test_the_command_takes_the_arguments_it_is_given(which, chosen):
    (container,) = pod(*which, *chosen)["containers"]
    assert container["command"][0] == "asd"
    parser = argparse.ArgumentParser(exit_on_error=False)
    importlib.import_module(COMMANDS[container["command"][1]][0]).add_arguments(parser)
    parser.parse_args(container["args"])


@pytest.mark.parametrize("which", [AGENT, HANDLER])
@pytest.mark.parametrize("chosen", [("base",), ("base", "tls")])
def test_a_pod_has_a_place_for_temporary_files_and_no_rights_it_does_not_need(which, chosen):
    spec = pod(*which, *chosen)
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"]
    lean = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert container["securityContext"] == lean
    for first in spec.get("initContainers", []):  # root's, for the folder is; and without any capability
        assert first["securityContext"] == {**lean, "runAsUser": 0, "runAsNonRoot": False}
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]}
    assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
    assert TAINT in [toleration["key"] for toleration in spec["tolerations"]]
    assert not any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC"))


def variables(container):
    return {each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]}


def test_jobs_and_agent_speak_of_the_node_by_the_name_that_kubernetes_gives_it():
    (agent,) = pod(*AGENT)["containers"]
    assert {job for job, _ in trainings()} == set(JOBS)
    for _, training in trainings():
        assert variables(training["containers"][0])["ASD_NODE"] == variables(agent)["ASD_NODE"] == "spec.nodeName"
    numbers = {job: variables(training["containers"][0]).get("ASD_RUN") for job, training in trainings()}
    several = "$(JOB_NAME)+$(JOB_VERSION)", "training+1", "training+1"
    assert numbers == dict(zip(JOBS, (None, *several), strict=True))  # one pod is on one node
    assert "--host=$(ASD_NODE)" in agent["args"]


def runs_of(spec):
    """What is mounted at /runs."""
    (name,) = [mount["name"] for mount in spec["containers"][0]["volumeMounts"] if mount["mountPath"] == "/runs"]
    return next(volume for volume in spec["volumes"] if volume["name"] == name)


def test_what_a_job_mounts_is_the_folder_of_the_agent_of_its_node():
    folder = runs_of(pod(*AGENT))
    assert folder["hostPath"]["path"] == "/var/lib/asd/runs"
    # `Directory`: a job must not make it, and where there is none no agent runs.
    wanted = {"name": "runs", "hostPath": {"path": folder["hostPath"]["path"], "type": "Directory"}}
    assert [runs_of(training) for _, training in trainings()] == [wanted] * len(trainings())


@pytest.mark.parametrize("name", ["asd-agent", "asd-handler"])
def test_services_and_rules_of_the_network_are_about_pods_that_exist(name):
    workload = item(*(AGENT if name == "asd-agent" else HANDLER))["spec"]["template"]
    service, policy = item("Service", name)["spec"], item("NetworkPolicy", name)["spec"]
    for selector in (service["selector"], policy["podSelector"]["matchLabels"]):
        assert selector.items() <= workload["metadata"]["labels"].items()
    ports = {port["name"]: port["containerPort"] for port in workload["spec"]["containers"][0]["ports"]}
    assert {port["targetPort"]: port["port"] for port in service["ports"]} == ports
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == set(ports)


def test_the_monitors_scrape_what_the_services_serve_under_the_names_of_the_rules():
    for monitor in items("monitoring/monitors.yaml"):
        service = item("Service", monitor["metadata"]["name"])
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
        job = "asd" if monitor["metadata"]["name"] == "asd-agent" else "asd-handler"
        assert endpoint["relabelings"] == [{"action": "replace", "targetLabel": "job", "replacement": job}]


def test_the_rules_of_the_operator_are_those_of_prometheus():
    sys.path.insert(0, str(FOLDER.parent))
    import make_rules

    assert make_rules.TARGET.read_text() == make_rules.rules()
    assert items("monitoring/rules.yaml")[0]["spec"] == yaml.safe_load(make_rules.SOURCE.read_text())


def test_the_handler_may_change_no_lease_but_its_own():
    rules = [rule for each in rendered("base") if each["kind"] == "Role" for rule in each["rules"]]
    (rule,) = [rule for rule in rules if "update" in rule["verbs"]]
    assert rule["resourceNames"] == ["asd-handler"]


def test_with_certificates_each_side_shows_its_own_and_lets_in_whom_the_other_names():
    made = {(each["kind"], each["metadata"]["name"]): each for each in rendered("base", "monitoring", "tls")}
    told = {name: yaml.safe_load(text) for name, text in made["ConfigMap", "asd-tls"]["data"].items()}
    assert told["web.yml"]["tls_server_config"]["client_auth_type"] == "RequireAndVerifyClientCert"
    assert told["web.yml"]["tls_server_config"]["client_allowed_sans"] == ["asd-handler", "asd-prometheus"]
    assert told["client.yml"]["tls_config"]["server_name"] == "asd-agent"
    for _, name in (AGENT, HANDLER):
        assert made["ServiceMonitor", name]["spec"]["endpoints"][0]["tlsConfig"]["serverName"] == name
