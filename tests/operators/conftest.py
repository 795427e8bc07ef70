"""Both execution modes in one process, and nothing left over from one test to the next."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("mindspore") is None:
    collect_ignore_glob = ["test_*.py", "*/test_*.py"]

HERE = Path(__file__).parent
# for checked_nets.py, and for what one test has of another
sys.path[:0] = [str(HERE), *sorted({str(path.parent) for path in HERE.rglob("test_*.py")})]

MODES = {"graph": 0, "pynative": 1}


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


@pytest.fixture
def clean(monkeypatch, tmp_path):
    """PyNative, the document's rule, which compiles fast, an empty folder, and MindSpore's own operators afterwards."""
    import mindspore as ms

    for name in [each for each in os.environ if each.startswith(("NPU_ASD_", "ASD_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ASD_PROTECTION", "document")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("asd.operators.private.compiler.api.ms_compile_cache", set())
    from asd.operators import disable
    from asd.operators.gate import slots

    slots.renew()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    yield
    ms.set_context(mode=ms.PYNATIVE_MODE)
    disable()
    slots.table().read(slots.table().sites())
    slots.table().arm(False)


@pytest.fixture(params=["pynative", pytest.param("graph", marks=pytest.mark.slow)])
def mode(request, clean):
    """The execution mode, already set; what only a compiler can break asks for `BOTH` or `GRAPH` of checked_nets."""
    import mindspore as ms

    ms.set_context(mode=MODES[request.param])
    return request.param


@pytest.fixture
def graph(clean):
    """Graph mode."""
    import mindspore as ms

    ms.set_context(mode=ms.GRAPH_MODE)


@pytest.fixture
def autostarted(monkeypatch, clean, tmp_path):
    """Detection by the start-up file, which skips refused updates; returns its watch on unjudged optimizers."""
    from asd.operators.start import autostart

    for name, value in {"NPU_ASD_ENABLE": "1", "ASD_ON_ANOMALY": "skip", "ASD_RUN_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(autostart, "_unwatched", autostart.Unwatched())
    autostart.start()
    yield autostart._unwatched
    autostart.stop()


@pytest.fixture
def enabled(monkeypatch, clean):
    """Detection on for operators made from now on."""
    monkeypatch.setenv("NPU_ASD_ENABLE", "1")
