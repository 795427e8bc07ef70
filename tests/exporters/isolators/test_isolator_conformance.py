"""Every isolator passes the same tests. Slurm's, and Kubernetes' once more, run on the real thing in tests/stack."""

import contextlib

import pytest
from isolator_conformance import Conformance, NodesThatComeAndGo
from isolator_engines import TWO, ConfigMapEngine, Engine, KubeEngine
from kube_server import TOKEN

HOSTS = "# the first rack\nn0 slots=8\nn1 slots=8\n\nn2:8\n"


class FileEngine(Engine):
    name = "hostfile"
    failures = {"no source": False, "garbage": False}  # noqa: RUF012 - never changed

    def __init__(self, folder):
        self.source, self.output = folder / "hosts", folder / "hosts.asd"
        self.source.write_text(HOSTS)
        super().__init__(hosts=self.source)
        self.make().isolate(TWO, "why", "e")  # so that there is an output
        self.make().release(TWO)

    def others(self, device):
        self.source.write_text(HOSTS.replace(device.host, f"#{device.host}"))

    def state(self):
        return self.output.read_text()

    @contextlib.contextmanager
    def failing(self, how):
        self.source.unlink()
        if how == "garbage":
            self.source.write_bytes(b"\x00\xff=[")
        try:
            yield
        finally:
            self.source.write_text(HOSTS)


class TestHostList(Conformance):
    @pytest.fixture
    def engine(self, tmp_path):
        return FileEngine(tmp_path)


class TestKubernetes(Conformance, NodesThatComeAndGo):
    @pytest.fixture
    def engine(self, tmp_path, server):
        made = KubeEngine(tmp_path, server.url, TOKEN, server)
        made.least_deaths = 5  # before and after the condition and the mark, and before the Event, which is there
        return made


class TestClusterDByConfigMap(Conformance):
    @pytest.fixture
    def engine(self, tmp_path, server):
        made = ConfigMapEngine(tmp_path, server.url, TOKEN, server)
        made.least_deaths = 2
        return made
