"""Both execution modes and both backends in one process, and nothing left over from one test to the next."""

import importlib.util
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("mindspore") is None:
    collect_ignore_glob = ["test_*.py", "*/test_*.py"]

HERE = Path(__file__).parent
# for checked_nets.py, and for what one test has of another
sys.path[:0] = [str(HERE), *sorted({str(path.parent) for path in HERE.glob("*/test_*.py")})]

SLOW = ("private", "recompute", "start", "step")
"""Folders whose tests are trainings."""
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


def pytest_collection_modifyitems(items):
    """In PyNative with MindSpore operators a training takes ten times as long: those are for `make test-slow`."""
    for item in items:
        given = item.callspec.params if hasattr(item, "callspec") else {}
        pair = given.get("corner", (given.get("mode"), given.get("backend")))
        if pair == ("pynative", "operators") and item.path.parent.parent == HERE and item.path.parent.name in SLOW:
            item.add_marker(pytest.mark.slow)


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

    yield
    disable()
    empty()
    slots.use_backend("kernel" if slots.kernel.library is not None else "operators")


@pytest.fixture(params=["graph", "pynative"])
def mode(request, clean):
    """The execution mode, already set."""
    import mindspore as ms

    ms.set_context(mode=MODES[request.param])
    yield request.param
    ms.set_context(mode=MODES["pynative"])


@pytest.fixture(params=["kernel", "operators"])
def backend(request, clean):
    """The backend, already chosen, its slots empty and its gate disarmed."""
    from asd.operators.table import slots

    if request.param == "kernel" and slots.kernel.library is None:
        pytest.skip("the C++ kernel was not built")
    slots.use_backend(request.param)
    empty()
    return request.param


@pytest.fixture(params=[("graph", "kernel"), ("pynative", "operators")], ids="-".join)
def corner(request, clean):
    """As `mode` and `backend` together, for what depends little on either; returns the mode."""
    import mindspore as ms

    from asd.operators.table import slots

    mode, backend = request.param
    if backend == "kernel" and slots.kernel.library is None:
        pytest.skip("the C++ kernel was not built")
    ms.set_context(mode=MODES[mode])
    slots.use_backend(backend)
    empty()
    yield mode
    ms.set_context(mode=MODES["pynative"])


@pytest.fixture
def enabled(monkeypatch, clean):
    """Detection on for operators made from now on."""
    monkeypatch.setenv("NPU_ASD_ENABLE", "1")
