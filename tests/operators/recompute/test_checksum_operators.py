"""The checksum without the C++ kernel: it cries no wolf, finds what is wrong, and trains in both modes."""

import mindspore as ms
import numpy as np
import pytest
from checked_nets import assert_same_bits, fill, values
from mindspore import Tensor, nn, ops
from test_product_check import KINDS, TYPES, in_order, normal, operands, product, repeated, spiked

from asd import AnomalyDetected, Config
from asd.operators import Checksum, StepMonitor
from asd.operators.recompute.product_operators import OperatorCheck
from asd.operators.table import slots

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture
def judge():
    """Score of a product, and whether there is one."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    slots.use_backend("operators")
    site = slots.table().new_site("product", "checksum")

    def judge(a, b, c, dtype, transpose_a=False, transpose_b=False):
        stored = a.swapaxes(-1, -2) if transpose_a else a, b.swapaxes(-1, -2) if transpose_b else b, c
        a, b, c = (Tensor(np.ascontiguousarray(x)).astype(getattr(ms, dtype)) for x in stored)
        score, judged = OperatorCheck(site, transpose_a, transpose_b).judge(a, b, c)
        return float(score.asnumpy()[0]), bool(judged.asnumpy()[0])

    return judge


@pytest.mark.parametrize("dtype", TYPES)
def test_a_right_product_is_never_called_wrong(judge, dtype):
    for kind in KINDS:
        for (m, k, n), transposed in (((17, 256, 257), (True, True)), ((2, 3000, 3), (False, False))):
            a, b = operands(np.random.default_rng(m), kind, m, k, n, dtype)
            score, judged = judge(a, b, product(a, b, dtype), dtype, *transposed)
            assert score < 1 or not judged, (kind.__name__, m)


@pytest.mark.parametrize("kind", [spiked, repeated])
def test_rounding_that_goes_one_way_is_no_mistake(judge, kind):
    a, b = (each.astype(np.float32) for each in kind(np.random.default_rng(0), 1024))
    product = in_order(a, b)
    assert judge(a, b, product, "float32")[0] <= 1
    product[5, 200] *= 1.01
    assert judge(a, b, product, "float32")[0] > 1


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("transpose_a", "transpose_b"), [(False, False), (True, False), (False, True)])
def test_a_wrong_element_is_found_in_every_batch_row_and_block(judge, dtype, transpose_a, transpose_b):
    rng = np.random.default_rng(4)
    pairs = [operands(rng, normal, 5, 16, 300, dtype) for _ in range(3)]
    a, b, c = (np.stack(each) for each in zip(*((*pair, product(*pair, dtype)) for pair in pairs), strict=True))
    for place in ((0, 0, 0), (1, 4, 255), (2, 2, 299)):
        wrong = c.copy()
        wrong[place] += 8
        assert judge(a, b, wrong, dtype, transpose_a, transpose_b)[0] > 1
    assert judge(a, b, c, dtype, transpose_a, transpose_b)[0] < 1


@pytest.mark.parametrize("place", range(3))
def test_what_is_not_finite_is_not_judged(judge, place):
    a, b = operands(np.random.default_rng(0), normal, 5, 6, 7, "float32")
    arrays = [a, b, product(a, b, "float32")]
    arrays[place][1, 1] = np.nan
    assert not judge(*arrays, "float32")[1]


class Net(nn.Cell):
    """One product and its two gradients."""

    def __init__(self):
        super().__init__()
        self.dense, self.norm = nn.Dense(8, 8), nn.LayerNorm((8,))

    def construct(self, x):
        return self.dense(self.norm(x)).square().mean()


class _Wrong(nn.Cell):
    def __init__(self, op):
        super().__init__(auto_prefix=False)
        self.op = op

    def construct(self, a, b):
        y = self.op(a, b)
        hit = ops.one_hot(Tensor([5], ms.int32), y.size, Tensor(1.0, ms.float32), Tensor(0.0, ms.float32))
        return y + hit.reshape(y.shape) * 0.01


def trained(monitor=None, strike=None):
    net = fill(Net())
    optimizer = nn.Momentum(net.trainable_params(), 1e-4, 0.9)
    step = nn.TrainOneStepCell(net, optimizer)
    if monitor is not None:
        monitor.attach(step, optimizer)
    if strike is not None:
        strike(net.dense.matmul.product.parts)
    for number in range(4):
        loss = step(Tensor(np.random.default_rng(number).standard_normal((6, 8)).astype(np.float32)))
        if monitor is not None:
            monitor.step(loss)
    return values(step.get_parameters())


def test_a_training_is_the_same_and_each_product_and_norm_is_checked_when_it_is_due(mode):
    slots.use_backend("operators")
    plain = trained()
    monitor = StepMonitor(Config(protection="document", enable=1), sinks=[], checksum=Checksum(every=2, first_steps=0))
    assert_same_bits(trained(monitor), plain)
    seen = {name: values for name, values in monitor.monitor.history.items() if "checksum" in name}
    assert sorted(seen) == [f"{layer}.checksum{part}" for layer in ("dense", "norm") for part in ("", "_dw", "_dx")]
    assert all(len(values) == 2 for values in seen.values())
    assert all(0 < value < 1 for values in seen.values() for _, value, *_ in values)


def test_a_wrong_product_is_named_and_its_update_refused(mode):
    slots.use_backend("operators")

    def strike(parts):
        parts.multiply_dx = _Wrong(parts.multiply_dx)

    monitor = StepMonitor(Config(protection="document", enable=1), sinks=[], checksum=Checksum(every=1))
    with pytest.raises(AnomalyDetected) as caught:
        trained(monitor, strike)
    event = caught.value.event
    assert (event.checkpoint, event.rule, event.step, event.refused) == ("dense.checksum_dx", "checksum", 1, True)
