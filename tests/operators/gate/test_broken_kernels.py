"""No operator that the gate is made of lets an update pass that its values refuse, whatever it returns."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

IN_GRAPHS = """Add AssignAdd Cast Equal FloorMod Gather GreaterEqual InplaceCopy L2Loss LessEqual LogicalAnd LogicalOr
Mul NotEqual ReduceSum ScatterMax ScatterUpdate Select Split Sqrt Stack Sub"""
IN_PYTHON = "Cast Concat InplaceCopy L2Loss Mul Sqrt Stack"
PROGRAM = """
import sys
from benchmarks.held_out.device import Device, broken
device = Device()
import mindspore as ms, numpy as np
from mindspore import Parameter, Tensor, nn
from asd.operators import guard
from asd.operators.gate import slots
from asd.operators.gate.guard import gradient_sites
ms.set_context(mode=int(sys.argv[1]))
weight = Parameter(np.zeros(4, np.float32), name="weight")
optimizer = guard(nn.SGD([weight], 1.0), gradients=True, lower=True)
table, sites = slots.table(), gradient_sites(optimizer)
def update(step, gradient):
    device.begin(step)
    table.set_limits([(site, 1e3) for site in sites], 1.0)
    table.arm(True)
    before = weight.asnumpy().tobytes()
    optimizer((Tensor(np.full(4, gradient, np.float32)),))
    applied = weight.asnumpy().tobytes() != before
    device.begin(step + 1)  # what the host reads is read rightly
    table.gates.default.fault = ""
    table.read(sites)
    return applied, table.gates.default.fault
step = 0
for name in sys.argv[2].split():
    for value in ("zero", "one", "stuck", "not a number", "stale"):
        for gradient in map(float, sys.argv[3].split()):
            step += 6
            device.break_down(broken(name, value=value, types=2, stuck=1234.5, first=step + 2, last=step + 2))
            assert update(step, 1.0) == (True, ""), ("healthy", name, value, gradient)
            assert not update(step + 2, gradient)[0], (name, value, gradient)
            device.break_down()
            update(step + 4, 1.0)
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="the device below MindSpore is built with g++")
@pytest.mark.parametrize(
    ("mode", "names", "gradients"),
    [
        pytest.param(0, "Cast Equal InplaceCopy Mul ReduceSum Sub", "1e38", id="graph"),
        pytest.param(1, "InplaceCopy L2Loss", "1e38", id="pynative"),
        pytest.param(0, IN_GRAPHS, "1e38 inf nan 1e12", id="graph-all", marks=pytest.mark.slow),
        pytest.param(1, IN_PYTHON, "1e38 inf nan 1e12", id="pynative-all", marks=pytest.mark.slow),
    ],
)
def test_a_kind_of_operator_that_is_broken_lets_no_update_pass_that_the_values_refuse(mode, names, gradients, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    words = [sys.executable, "-c", PROGRAM, str(mode), names, gradients]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
