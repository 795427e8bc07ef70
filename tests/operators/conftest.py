"""Both execution modes in one process, and nothing left over from one test to the next."""

import importlib.util
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("mindspore") is None:
    collect_ignore_glob = ["test_*.py", "*/test_*.py"]

HERE = Path(__file__).parent
# for checked_nets.py, and for what one test has of another
sys.path[:0] = [str(HERE), *sorted({str(path.parent) for path in HERE.glob("*/test_*.py")})]

MODES = {"graph": 0, "pynative": 1}
SETTINGS = (
    "NPU_ASD_ENABLE",
    "NPU_ASD_UPPER_THRESH",
    "NPU_ASD_SIGMA_THRESH",
    "ASD_ON_ANOMALY",
    "ASD_PROTECTION",
    "ASD_RULE",
    "ASD_RUN_DIR",
)


@pytest.fixture(scope="session", autouse=True)
def one_by_one():
    """PyNative makes each operator before the next: threads that wait for one another take ten times the processor."""
    import mindspore as ms

    ms.set_context(pynative_synchronize=True)


@pytest.fixture
def ahead():
    """PyNative runs behind Python, as it does by default."""
    import mindspore as ms

    ms.set_context(pynative_synchronize=False)
    yield
    ms.set_context(pynative_synchronize=True)


def empty():
    """Empties all slots and disarms the gate."""
    from asd.operators.table import slots

    slots.table().read(slots.table().sites())
    slots.table().arm(False)


@pytest.fixture
def clean(monkeypatch, tmp_path):
    """The document's rule, which compiles fast, an empty working folder, and MindSpore's own operators afterwards."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ASD_PROTECTION", "document")
    monkeypatch.chdir(tmp_path)
    from asd.operators import disable
    from asd.operators.table import slots

    slots.renew()
    yield
    disable()
    empty()


@pytest.fixture(params=["graph", "pynative"])
def mode(request, clean):
    """The execution mode, already set."""
    import mindspore as ms

    ms.set_context(mode=MODES[request.param])
    yield request.param
    ms.set_context(mode=MODES["pynative"])


@pytest.fixture
def enabled(monkeypatch, clean):
    """Detection on for operators made from now on."""
    monkeypatch.setenv("NPU_ASD_ENABLE", "1")
