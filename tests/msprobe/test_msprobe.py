"""A round trip with the real msprobe: each dump of a training step by either tool meets the other's, row for row."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import mindspore as ms
import pytest

from asd.cli import main
from asd.operators import PrecisionDebugger

PYTHON = os.environ.get("MSPROBE_PYTHON")
pytestmark = pytest.mark.skipif(PYTHON is None, reason="`make test-msprobe` says in MSPROBE_PYTHON which has msprobe")
PROGRAMS = Path(__file__).parent / "programs"
TASKS = {
    "statistics": {"task": "statistics", "statistics": {"summary_mode": "statistics"}},
    "tensor": {"task": "tensor", "tensor": {}},
    "md5": {"task": "statistics", "statistics": {"summary_mode": "md5"}},
    "list": {"task": "statistics", "statistics": {"summary_mode": ["max", "l2norm"]}},
}
CASES = [(level, task) for level in ("L0", "L1", "mix") for task in list(TASKS)[: 4 if level == "mix" else 3]]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def dumps(request, tmp_path_factory):
    """The folders of two steps: msprobe's, of one process without ranks, and ours."""
    level, task = request.param
    folder = tmp_path_factory.mktemp("dumps")
    for side in ("peer", "ours"):
        inner = {"scope": [], "list": [], "data_mode": ["all"]}
        content = {"level": level, "rank": [], "step": [], "dump_path": str(folder / side), **TASKS[task]}
        content[content["task"]] = {**inner, **content[content["task"]]}
        (folder / f"{side}.json").write_text(json.dumps(content))
    command = [PYTHON, str(PROGRAMS / "peer_dump.py"), str(folder / "peer.json")]  # in a folder proc{pid}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    sys.path.insert(0, str(PROGRAMS))
    from network import made

    ms.set_context(mode=ms.PYNATIVE_MODE)
    net, step = made()
    debugger = PrecisionDebugger(config_path=folder / "ours.json")
    for _ in range(2):
        debugger.start(net)
        step()
        debugger.stop()
        debugger.step()
    return folder / "peer", folder / "ours"


def entries(run):
    (file,) = run.glob("step1/*/dump.json")
    return json.loads(file.read_text())["data"]


def test_both_have_the_same_entries(dumps):
    peer, ours = map(entries, dumps)
    assert set(peer) == {name for name in ours if not name.startswith("Cell.model.")}


@pytest.mark.parametrize("turned", [False, True])
def test_our_comparison_finds_a_partner_for_each_row_and_no_difference(turned, dumps, tmp_path, capsys):
    tested, trusted = reversed(dumps) if turned else dumps
    assert main(["compare", "-tp", str(tested), "-gp", str(trusted), "-o", str(tmp_path)]) == 0
    first, second = sorted(tmp_path.glob("compare_result_step*_rank0_*.csv"))
    rows = list(csv.DictReader(first.read_text().splitlines()))
    assert len(rows) == len(second.read_text().splitlines()) - 1
    pairs = [(row["NPU Name"], row["Bench Name"]) for row in rows]
    # The network itself is ours alone.
    alone = [pair for pair in pairs if "N/A" in pair and not any(name.startswith("Cell.model.") for name in pair)]
    assert len(rows) > 20
    assert alone == []
    assert "The runs do not part" in capsys.readouterr().out


@pytest.mark.parametrize("turned", [False, True])
def test_msprobes_comparison_reads_both_and_misses_no_row_but_of_gradients_it_lists_elsewhere(turned, dumps, tmp_path):
    tested, trusted = (next(run.glob("step0/*/dump.json")) for run in (reversed(dumps) if turned else dumps))
    command = [str(Path(PYTHON).with_name("msprobe")), *f"compare -tp {tested} -gp {trusted} -o {tmp_path}".split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    (file,) = tmp_path.glob("compare_result_*.csv")
    rows = list(csv.DictReader(file.read_text(encoding="utf-8-sig").splitlines()))
    assert len(rows) > 20
    alone = [row["NPU Name"] for row in rows if row["Bench Name"] == "N/A"]
    alone = [name for name in alone if not name.startswith("Cell.model.")]
    # Where an input has no gradient msprobe lists that of the next input in its place, and we leave the place empty.
    assert all(name.startswith(("Primitive.", "Cell.")) and ".backward" in name for name in alone)
    assert {name.rpartition(".")[0].rpartition(".")[2] for name in alone} <= {"output"}
    assert len(alone) <= 4
