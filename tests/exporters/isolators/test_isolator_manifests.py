"""The shipped manifests agree with the programs. A real API server takes them in tests/stack/test_kubernetes.py."""

import argparse
import importlib
import inspect
from pathlib import Path

import pytest

from asd.exporters.isolators.clusterd import ClusterD
from asd.exporters.isolators.node_mark import TAINT

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
    importlib.import_module(f"asd.cli.{container['command'][1]}").add_arguments(parser)
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
