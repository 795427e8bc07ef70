"""The engines that isolators are tried on."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for isolator_engines.py and its like

from kube_server import THEIRS, KubeServer

pytest.register_assert_rewrite("isolator_conformance")


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A Kubernetes API server with two nodes, one of which bears the taint of somebody else."""
    made = KubeServer(monkeypatch, tmp_path)
    made.node("n0", taints=[dict(THEIRS)], providerID="p")
    made.node("n1")
    yield made
    made.close()
