"""The overflow check, forward and backward, in all of its modes."""

import json
import logging

import mindspore as ms
import numpy as np
import pytest
from debugged_nets import dump_of, recording
from mindspore import Tensor, mint, nn, ops

from asd.dumps.record.debugger_config import DebuggerConfig
from asd.errors import OverflowDetected, StateError
from asd.operators import PrecisionDebugger

pytestmark = pytest.mark.usefixtures("clean")
CHECK = {"task": "overflow_check"}


class Overflows(nn.Cell):
    """Forward `Exp` is too large for float16 or `MatMul` is, and backward `Sqrt` divides by zero."""

    def __init__(self, where):
        super().__init__()
        self.where = where
        self.exp, self.matmul, self.sqrt, self.relu = ops.Exp(), ops.MatMul(), ops.Sqrt(), ops.ReLU()
        self.weight = ms.Parameter(Tensor(np.full((4, 4), 200, np.float16)), name="weight")

    def construct(self, x):
        if self.where == "exp":
            x = self.relu(self.exp(x * 20))
        elif self.where == "matmul":
            x = self.relu(self.matmul(x * 200, self.weight))
        else:
            x = self.sqrt(self.relu(x - 1))
        return x


def checked(tmp_path, where, check_mode="all", level="L1", count=1):
    """Trains one step under the overflow check; what ended it, or None."""
    net = Overflows(where)
    step = ms.value_and_grad(net, 0, net.trainable_params())
    inner = {"overflow_nums": count, "check_mode": check_mode}
    try:
        with recording(net, tmp_path, **CHECK, level=level, overflow_check=inner):
            step(Tensor(np.ones((2, 4), np.float16)))
    except OverflowDetected as found:
        return found
    return None


@pytest.mark.parametrize(
    ("where", "name", "kind"),
    [
        ("exp", "Primitive.exp.Exp.0.forward", "aicore_overflow"),
        ("matmul", "Primitive.matmul.MatMul.0.forward", "atomic_overflow"),
        ("sqrt", "Primitive.sqrt.Sqrt.0.backward", "aicore_overflow"),
    ],
)
def test_the_first_overflow_ends_training_by_its_name_under_the_mode_that_seeks_it(tmp_path, where, name, kind):
    found = checked(tmp_path, where, kind)
    assert (found.name, found.count) == (name, 1)
    records = sorted(tmp_path.rglob("Overflow_info_*.pkl"))
    assert len(records) == 1
    line = json.loads(records[0].read_text().splitlines()[-1])
    assert line[0].startswith(name.replace(".", "_") + "_output")
    assert max(abs(value) for value in line[5] if not np.isnan(value)) == np.inf
    data = dump_of(tmp_path)[0]["data"]
    assert list(data) == [name]
    assert data[name]["overflow"] == "overflow"


def test_a_mode_passes_over_the_overflows_of_the_other(tmp_path):
    assert checked(tmp_path, "matmul", "aicore_overflow", count=-1) is None
    assert not any("MatMul_0_forward" in path.read_text() for path in tmp_path.rglob("*.pkl"))


def test_after_the_last_of_overflow_nums_nothing_more_is_counted(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "asd"):
        found = checked(tmp_path, "exp", count=2)
    assert found.count == 2
    assert [record.message.startswith("[overflow") for record in caplog.records].count(True) == 2
    assert len(list(tmp_path.rglob("Overflow_info_*.pkl"))) == 2


def test_where_the_call_itself_is_not_seen_the_first_that_was_given_it_is_named(tmp_path):

    class Around(nn.Cell):
        def __init__(self):
            super().__init__()
            self.relu = nn.ReLU()

        def construct(self, x):
            return self.relu(ops.exp(x * 1000))

    net = Around()
    with pytest.raises(OverflowDetected) as found, recording(net, tmp_path, **CHECK, level="L0"):
        net(Tensor(np.ones(4, np.float32)))
    assert found.value.name == "Cell.relu.ReLU.forward.0"
    assert dump_of(tmp_path)[0]["data"]["Cell.relu.ReLU.forward.0"]["overflow"].startswith("inputs already overflow")


def test_a_gradient_of_a_parameter_that_overflows_ends_a_training_without_stop_in_the_next_forward_pass(tmp_path):
    net, x = nn.Dense(4, 4), Tensor(np.full((2, 4), 1e30, np.float32))
    with recording(net, tmp_path, **CHECK, level="L0") as debugger:
        debugger.end_training_at_once()
        ms.grad(lambda x: (net(x) * 1e30).sum(), None, net.trainable_params())(x)
        with pytest.raises(OverflowDetected, match=r"parameters_grad\.0"):
            net(x)


def test_a_mask_that_is_filled_with_inf_on_purpose_is_no_overflow(tmp_path):
    with recording(None, tmp_path, **CHECK, level="L1"):
        scores = Tensor(np.zeros((2, 2), np.float32))
        masked = ops.masked_fill(scores, Tensor([[False, True], [False, False]]), float("-inf"))
        mint.softmax(masked, -1)
    assert not any(tmp_path.rglob("*.pkl"))


def test_a_dump_and_an_overflow_check_refuse_each_other(tmp_path):
    dump = PrecisionDebugger(DebuggerConfig.of({"dump_path": str(tmp_path / "dump")}))
    check = PrecisionDebugger(DebuggerConfig.of({"task": "overflow_check", "dump_path": str(tmp_path / "check")}))
    dump.start()
    with pytest.raises(StateError, match="with the task statistics"):
        check.start()
    dump.stop()
    check.start()
    with pytest.raises(StateError, match="with the task overflow_check"):
        dump.start()
    check.stop()


class HoldsInf(nn.Cell):
    """`MatMul` with a weight that holds Inf; what comes after makes NaN of it."""

    def __init__(self):
        super().__init__()
        weight = np.eye(4, dtype=np.float32)
        weight[1, 1] = np.inf
        self.weight = ms.Parameter(Tensor(weight), name="weight")
        self.matmul, self.exp = ops.MatMul(), ops.Exp()

    def construct(self, x):
        x = self.matmul(x, self.weight)
        return (x - self.exp(x)).sum()


@pytest.mark.parametrize("check_mode", ["atomic", "aicore"])
def test_inf_that_is_already_in_a_weight_is_told_where_the_weight_is_used_first(tmp_path, check_mode, caplog):
    net = HoldsInf()
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.1))
    inner = {"overflow_nums": 1, "check_mode": check_mode}
    check = recording(net, tmp_path, **CHECK, overflow_check=inner)
    with caplog.at_level(logging.WARNING, "asd"), pytest.raises(OverflowDetected, match="MatMul.0.forward"), check:
        step(Tensor(np.ones((4, 4), np.float32)))
    assert "holds Inf or NaN already" in caplog.text
