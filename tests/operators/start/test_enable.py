"""MindSpore's own norm operators replaced by the checking ones, and put back."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from checked_nets import HIDDEN, Decoder, fill, gradients, ids, readings, targets, with_check_operators
from mindspore import nn, ops
from mindspore.ops import operations

import asd
from asd.injection import Fault
from asd.operators import LayerNormASD, RmsNormASD, disable, enable
from asd.operators.inject import FaultInjector

pytestmark = pytest.mark.usefixtures("clean")
ORIGINALS = {(module, name): getattr(module, name) for module in (ops, operations) for name in ("LayerNorm", "RmsNorm")}


def bound():
    return {place: getattr(*place) for place in ORIGINALS}


def test_both_modules_get_the_checking_operators_and_get_their_own_back():
    enable()
    replaced = {"LayerNorm": LayerNormASD, "RmsNorm": RmsNormASD}
    assert bound() == {place: replaced[place[1]] for place in ORIGINALS}
    disable()
    assert bound() == ORIGINALS


def test_layers_built_in_between_check_and_the_others_do_not(mode, enabled):
    before = nn.LayerNorm((HIDDEN,))
    with with_check_operators():
        net = fill(Decoder())
    after = nn.LayerNorm((HIDDEN,))
    kinds = [type(cell.layer_norm).__name__ for cell in (before, net.norm_out, after)]
    assert kinds == ["LayerNorm", "LayerNormASD", "LayerNorm"]
    injector = FaultInjector(Fault.parse("gradient:ASD_LayerNorm:scale=2:step=1"))
    injector.attach(net)
    injector.begin_step()
    gradients(net, net.trainable_params(), ids(), targets())
    assert len(injector.changes) == 1
    found = readings()
    assert len(found) == 3
    assert all(name.startswith("ASD_LayerNorm_") for name in found)


IMPORT = """
import mindspore as ms
from mindspore import nn, ops
import asd.operators
print(ops.LayerNorm.__name__, ops.operations.RmsNorm.__name__, type(nn.LayerNorm((4,)).layer_norm).__name__)
"""


@pytest.mark.parametrize(
    ("switch", "names"), [("1", "LayerNormASD RmsNormASD LayerNormASD"), ("0", "LayerNorm RmsNorm LayerNorm")]
)
def test_importing_the_operators_enables_exactly_when_the_switch_is_on(switch, names):
    environ = {**os.environ, "PYTHONPATH": str(Path(asd.__file__).parents[1]), "NPU_ASD_ENABLE": switch}
    done = subprocess.run([sys.executable, "-c", IMPORT], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == [names], done.stderr
