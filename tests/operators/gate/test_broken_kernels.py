"""No operator that the gate is made of lets an update pass that its values refuse, whatever it returns."""

import shutil
from pathlib import Path

import pytest

from benchmarks._ranks import ranks_of

IN_GRAPHS = """Add AssignAdd Cast Equal FloorMod Gather GreaterEqual InplaceCopy L2Loss LessEqual LogicalAnd LogicalOr
Maximum Minimum Mul NotEqual ReduceSum ScatterMax ScatterUpdate Select Split Sqrt Stack Sub"""
OVER_RANKS = f"AllReduce Concat Slice {IN_GRAPHS}"
IN_PYTHON = "Cast Concat InplaceCopy L2Loss Mul Sqrt Stack"
PROGRAM = """
import sys
from benchmarks.held_out.device import Device, broken
device = Device()
import mindspore as ms, numpy as np
from mindspore import Parameter, Tensor, nn
from mindspore.communication import get_rank, init
from asd.operators import guard
from asd.operators.gate import slots
ms.set_context(mode=int(sys.argv[1]))
ranks, rank = int(sys.argv[4]), 0
if ranks > 1:
    init()
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    rank = get_rank()
weight = Parameter(np.zeros(4, np.float32), name="weight")
optimizer = guard(nn.SGD([weight], 1.0), gradients=True, lower=True)
table, sites = slots.table(), optimizer.asd_gate.sites
gate = table.gates.default
def update(step, gradient):
    device.begin(step)
    table.set_limits([(site, 1e3) for site in sites], 1.0)
    table.arm(True)
    before = weight.asnumpy().tobytes()
    optimizer((Tensor(np.full(4, gradient, np.float32)),))
    applied = weight.asnumpy().tobytes() != before
    device.begin(step + 1)  # what the host reads is read rightly
    gate.fault = ""
    refused = table.newly_refused(gate) > 0
    table.read(sites)
    if ranks > 1 and (refused or gate.fault):  # as the reader of steps does
        table.align(gate, step)
    return applied, gate.fault
step = 0  # next: on which ranks a kernel is broken, and on which ones the gradient is, as a mean is on all
places = [({0}, {0})] if ranks == 1 else [({1}, {0, 1}), ({1}, {1}), ({1}, {0})]
for name in sys.argv[2].split():
    for value in ("zero", "one", 1234.5, 1e30, -1e30, "not a number", "stale", "lost"):
        for gradient in map(float, sys.argv[3].split()):
            for bad, large in places if name != "AllReduce" else [({0, 1}, {1}), *places]:
                step += 6
                how = {"value": value} if isinstance(value, str) else {"value": "stuck", "stuck": value}
                fault = broken(name, **how, types=2, first=step + 2, last=step + 2)
                device.break_down(*([fault] if rank in bad else []))
                assert update(step, 1.0) == (True, ""), ("healthy", name, value, gradient, bad, large)
                applied, _ = update(step + 2, gradient if rank in large else 1.0)
                assert not applied, (name, value, gradient, bad, large)
                device.break_down()
                update(step + 4, 1.0)
if "InplaceCopy" in sys.argv[2] and sys.argv[1] == "0" and ranks == 1:  # limits that never reach the device
    device.break_down(broken("InplaceCopy", value="lost", types=2, first=step + 6, last=step + 9))
    assert [update(step + 6, 1.0)[1], update(step + 8, 1.0)[1]] == ["", "measured"]
print('REFUSED "all"', flush=True)
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="the device below MindSpore is built with g++")
@pytest.mark.parametrize(
    ("mode", "names", "gradients", "ranks"),
    [
        pytest.param(0, "Cast Equal FloorMod InplaceCopy Mul ReduceSum Sub", "1e38", 1, id="graph"),
        pytest.param(1, "InplaceCopy L2Loss", "1e38", 1, id="pynative"),
        pytest.param(0, "AllReduce Mul ReduceSum Split", "nan", 2, id="graph-ranks"),
        pytest.param(0, IN_GRAPHS, "1e38 inf nan 1e12", 1, id="graph-all", marks=pytest.mark.slow),
        pytest.param(1, IN_PYTHON, "1e38 inf nan 1e12", 1, id="pynative-all", marks=pytest.mark.slow),
        pytest.param(0, OVER_RANKS, "1e38 nan", 2, id="graph-ranks-all", marks=pytest.mark.slow),
        pytest.param(1, f"AllReduce {IN_PYTHON}", "1e38 nan", 2, id="pynative-ranks-all", marks=pytest.mark.slow),
    ],
)
def test_a_broken_operator_lets_no_update_pass_that_values_refuse(mode, names, gradients, ranks, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with ranks_of(program, [mode, names, gradients, ranks], ranks, "REFUSED", timeout=800) as (told, _):
        assert told == ["all"] * ranks
