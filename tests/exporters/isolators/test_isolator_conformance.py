"""Every isolator passes the same tests. Slurm's, and Kubernetes' once more, run on the real thing in tests/stack."""

import contextlib
import fcntl
import json

import pytest
from isolator_conformance import Conformance
from isolator_engines import TWO, ConfigMapEngine, Engine, KubeEngine, table
from kube_server import TOKEN, KubeServer

HOSTS = "# the first rack\nn0 slots=8\nn1 slots=8\n\nn2:8\n"
TABLE = table([(f"n{node}", chip) for node in range(2) for chip in range(8)])


class FileEngine(Engine):
    name = "hostfile"
    failures = {"no source": False, "garbage": False, "corrupt record": False, "locked": True}  # noqa: RUF012 - never changed
    reads_anyway = ("locked",)
    least_deaths = 2

    def __init__(self, folder, kinds):
        self.folder, options = folder, {"timeout": 0.1}
        self.sources = {}
        for option, text in (("hosts", HOSTS), ("rank_table", json.dumps(TABLE))):
            if option in kinds:
                self.sources[folder / option] = text
                (folder / option).write_text(text)
                options |= {option: folder / option, f"{option}_out": folder / f"out.{option}"}
        self.record = folder / f"out.{kinds[0]}.isolated.json"
        super().__init__(**options)
        self.make().isolate(TWO, "why", "e")  # so that there is an output
        self.make().release(TWO)

    def others(self, device):
        if (folder := self.folder / "out.hosts").exists():
            lines = folder.read_text().splitlines(keepends=True)
            folder.write_text("".join(line for line in lines if not line.startswith(device.host)))
        if (path := self.folder / "out.rank_table").exists():
            table = json.loads(path.read_text())
            for server in table["server_list"]:
                if server["server_id"] == device.host:
                    server["device"] = [
                        one for one in server["device"] if f"Ascend:{one['device_id']}" != device.device
                    ]
            path.write_text(json.dumps(table))

    def state(self):
        return [path.read_text() for path in sorted(self.folder.glob("out.*")) if path != self.record]

    @contextlib.contextmanager
    def failing(self, how):
        record = self.record.read_text()
        with open(self.folder / f".{self.record.name}.lock", "a") as lock:
            if how == "locked":
                fcntl.flock(lock, fcntl.LOCK_EX)
            elif how == "corrupt record":
                self.record.write_text('{"version": 1, "out"')
            for path in self.sources if how in ("no source", "garbage") else ():
                path.unlink()
                if how == "garbage":
                    path.write_bytes(b"\x00\xff=[")
            try:
                yield
            finally:
                for path, text in self.sources.items():
                    path.write_text(text)
                self.record.write_text(record)


class _Files(Conformance):
    @pytest.fixture
    def engine(self, tmp_path):
        return FileEngine(tmp_path, self.kinds)


class TestHostList(_Files):
    kinds = ("hosts",)


class TestRankTable(_Files):
    kinds = ("rank_table",)


class TestHostListAndRankTable(_Files):
    kinds = ("hosts", "rank_table")


@pytest.fixture
def server():
    """A Kubernetes API server with two nodes, one of which bears the taint of somebody else."""
    made = KubeServer()
    made.node("n0", taints=[{"key": "theirs", "value": "x", "effect": "NoSchedule"}], podCIDR="10.0.0.0/24")
    made.node("n1")
    yield made
    made.close()


class TestKubernetes(Conformance):
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
