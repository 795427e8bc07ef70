"""The shipped manifests agree with the programs. A real API server takes them in tests/stack/test_kubernetes.py."""

import argparse
import importlib
import inspect
import time
from pathlib import Path

import pytest

from asd import Config, Event, Level
from asd.cli import COMMANDS
from asd.exporters.isolators.clusterd.isolator import ClusterD
from asd.exporters.isolators.kubernetes.node_mark import TAINT
from asd.exporters.prometheus.agent import Agent
from asd.exporters.run_files.event_log import EventLog
from asd.handler import FaultHandler, Policy, Store
from asd.handler.act.no_isolator import NoIsolator
from asd.handler.inputs.feed import LogFeed
from asd.rundir.names import event_file

yaml = pytest.importorskip("yaml")
FOLDER = Path(__file__).parents[3] / "deploy" / "kubernetes"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="only the source tree has this")


def items(name):
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def pod(name):
    (item,) = items(name)
    return item["spec"]["template"]["spec"]


def test_every_file_is_named_in_the_kustomization():
    text = (FOLDER / "kustomization.yaml").read_text()
    assert [
        path.name for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml" and path.name not in text
    ] == []
    assert set(items("kustomization.yaml")[0]["resources"]) <= {path.name for path in FOLDER.glob("*.yaml")}


@pytest.mark.parametrize("name", ["exporter-daemonset.yaml", "handler-deployment.yaml"])
def test_the_command_takes_the_arguments_it_is_given(name):
    (container,) = pod(name)["containers"]
    assert container["command"][0] == "asd"
    parser = argparse.ArgumentParser(exit_on_error=False)
    importlib.import_module(COMMANDS[container["command"][1]][0]).add_arguments(parser)
    assert parser.parse_args(container["args"]).run_dir == [Path("/runs")]


@pytest.mark.parametrize("name", ["exporter-daemonset.yaml", "handler-deployment.yaml"])
def test_a_pod_has_no_rights_it_does_not_need(name):
    (container,) = pod(name)["containers"]
    assert pod(name)["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod(name)["volumes"]}
    assert TAINT in [toleration["key"] for toleration in pod(name)["tolerations"]]


def variables(container):
    return {each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]}


def test_job_and_agent_speak_of_the_node_by_the_name_that_kubernetes_gives_it():
    (agent,) = pod("exporter-daemonset.yaml")["containers"]
    (job,) = pod("training-job.yaml")["containers"]
    assert variables(agent)["ASD_NODE"] == variables(job)["ASD_NODE"] == "spec.nodeName"
    assert "--host=$(ASD_NODE)" in agent["args"]


def test_what_a_job_leaves_in_the_claim_is_found_by_agent_and_handler(tmp_path):
    """The manifests as they are, with the mount as a folder and the fields of the pods put in."""
    names = ("training-job.yaml", "exporter-daemonset.yaml", "handler-deployment.yaml")
    pods = {name: pod(name) for name in names}
    claims = {volume["persistentVolumeClaim"]["claimName"] for each in pods.values() for volume in each["volumes"]
              if "persistentVolumeClaim" in volume}  # fmt: skip
    assert claims == {items("runs.yaml")[0]["metadata"]["name"]}
    assert {items(name)[0]["metadata"]["namespace"] for name in (*names, "runs.yaml")} == {"asd"}
    (job,), (agent,), (handler,) = (pods[name]["containers"] for name in names)
    mounts = [mount["mountPath"] for each in (job, agent, handler) for mount in each["volumeMounts"]
              if mount["name"] == "runs"]  # fmt: skip
    assert mounts == ["/runs", "/runs", "/runs"]
    known = {**variables(job), "ASD_NODE": "node7", "JOB_NAME": "llama"}
    root = Path(known["ASD_RUN_DIR"].replace("$(JOB_NAME)", "llama").replace("/runs", str(tmp_path)))
    config = Config.from_env({"ASD_NODE": known["ASD_NODE"], "ASD_RUN_DIR": str(root)})
    event = Event(
        run="llama", rank=0, host=config.name_of_node(), device="Ascend:3", step=7, checkpoint="norm", value=2e6,
        limits=(1e6,), level=Level.ERROR, kind="anomaly", rule="threshold", feature="l2", reason="", refused=True,
        time=time.time(),
    )  # fmt: skip
    EventLog(event_file(Path(config.run_dir), 0))(event)
    found = Agent([tmp_path], tmp_path / "state.json", host="node7")
    found.poll()
    assert [each.host for each in found.ledger.events()] == ["node7"]
    found.close()
    store = Store(None)
    handling = FaultHandler(store, Policy(), NoIsolator(store), print, from_beginning=True)
    feed = LogFeed(handling, [tmp_path])
    assert [(each.action, each.device.host) for each in feed.step()] == [("strike", "node7")]
    assert feed.nothing_found == ""


def test_a_claim_without_a_run_is_told_of_by_the_handler(tmp_path):
    store = Store(None)
    feed = LogFeed(FaultHandler(store, Policy(), NoIsolator(store), print), [tmp_path])
    assert feed.step() is None
    assert feed.nothing_found.startswith(f"no run was found in {tmp_path} or below; ")


def test_the_handler_shows_how_it_is():
    (container,) = pod("handler-deployment.yaml")["containers"]
    (port,) = container["ports"]
    assert f"--metrics=$(POD_IP):{port['containerPort']}" in container["args"]
    assert [container[f"{name}Probe"]["httpGet"] for name in ("liveness", "readiness")] == [
        {"path": "/healthz", "port": "metrics"}, {"path": "/readyz", "port": "metrics"},
    ]  # fmt: skip


def test_the_handler_is_alone_and_begins_as_a_dry_run():
    (item,) = items("handler-deployment.yaml")
    assert (item["spec"]["replicas"], item["spec"]["strategy"]) == (1, {"type": "Recreate"})
    assert "--dry-run" in pod("handler-deployment.yaml")["containers"][0]["args"]


def test_the_role_for_clusterd_names_the_config_map_that_is_written():
    defaults = inspect.signature(ClusterD).parameters
    (role,) = [
        item
        for item in items("rbac-clusterd.yaml")
        if item["kind"] == "Role" and item["metadata"]["namespace"] == "mindx-dl"
    ]
    assert role["metadata"]["namespace"] == defaults["namespace"].default
    assert role["rules"][0]["resourceNames"] == [defaults["config_map"].default]
