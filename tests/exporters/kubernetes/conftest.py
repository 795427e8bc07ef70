"""An API server that every test here asks, and how it is found."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("lightkube")
sys.path.insert(0, str(Path(__file__).parents[1] / "isolators"))  # for kube_server.py

from isolator_engines import KubeEngine
from kube_server import TOKEN, KubeServer

from asd.exporters.isolators.kubernetes.api import KubeApi


@pytest.fixture
def kube(monkeypatch, tmp_path):
    server = KubeServer(monkeypatch, tmp_path)
    yield server
    server.close()


@pytest.fixture
def kubeconfig(kube, tmp_path):
    return KubeEngine(tmp_path, kube.url, TOKEN, kube).kubeconfig


@pytest.fixture
def api(kubeconfig):
    return KubeApi(kubeconfig=str(kubeconfig), timeout=0.5)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()
