"""In PyNative the library is called for what is due, and for nothing else."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.recompute import kernel_check
from asd.operators.recompute.convolution import checked_convolution
from asd.operators.recompute.lookup import checked_lookup
from asd.operators.recompute.norm import CheckedNorm
from asd.operators.recompute.product import CheckedProduct
from asd.operators.recompute.softmax import checked_softmax
from asd.operators.table.slots import table

pytestmark = pytest.mark.usefixtures("clean")


RNG = np.random.default_rng(1)


def _floats(*shape):
    return Tensor(RNG.standard_normal(shape).astype(np.float32))


def _product():
    checked = CheckedProduct(P.MatMul(), "place")
    parts = checked.parts
    return checked, [parts.check, parts.check_dx, parts.check_dw], (_floats(4, 8), _floats(8, 8))


def _norm():
    checked = CheckedNorm(P.LayerNorm(1, 1), "place", groups=0, centred=True, epsilon=1e-7, shifted=True)
    return checked, [checked.end.check, checked.begin.check], (_floats(4, 8), _floats(8), _floats(8))


def _convolution():
    checked = checked_convolution(P.Conv2D(4, 3, pad_mode="same"), "place")
    call = checked.call
    return checked, [call.check, call.check_dx, call.check_dw], (_floats(2, 3, 6, 6), _floats(4, 3, 3, 3))


def _lookup():
    checked = checked_lookup(P.Gather(), "place")
    return checked, [checked.call.check, checked.call.check_dx], (_floats(16, 8), Tensor([[1, 3, 3], [0, 15, 1]]))


def _softmax():
    checked = checked_softmax(P.Softmax(), "place")
    return checked, [checked.call.check, checked.call.check_dx], (_floats(4, 8),)


class Net(nn.Cell):
    def __init__(self, op):
        super().__init__()
        self.op = op

    def construct(self, *operands):
        result = self.op(*operands)
        return (result[0] if isinstance(result, tuple) else result).square().sum()


@pytest.mark.parametrize("make", [_product, _norm, _convolution, _lookup, _softmax])
def test_a_part_that_is_not_due_is_not_handed_to_the_library_and_no_bit_changes(make, monkeypatch):
    ms.set_context(mode=ms.PYNATIVE_MODE)
    table().schedule_checksums(1, 0, True, 0)  # the library itself would check all of them
    checked, checks, operands = make()
    due, called = set(), []
    for owner in (checked, *checks):
        owner.is_due = lambda site: site in due
    for check in checks:
        monkeypatch.setattr(check, "construct", _noting(called, check))
    floats = tuple(i for i, operand in enumerate(operands) if operand.dtype == ms.float32)
    gradient = ms.value_and_grad(Net(checked), grad_position=floats)

    def bits():
        value, gradients = gradient(*operands)
        return [each.asnumpy().tobytes() for each in (value, *gradients)]

    bare = bits()
    assert called == []
    for check in checks:
        due.clear()
        due.add(check.sites[0])
        called.clear()
        assert bits() == bare
        assert called == [check]
        assert table().read(check.sites[:1])[0].calls == 1
    table().schedule_checksums(0, 0, False, 0)


def test_the_budget_learns_what_pynative_takes_to_call_the_library(monkeypatch):
    ms.set_context(mode=ms.PYNATIVE_MODE)
    checked, [check, *_], operands = _product()
    checked(*operands)
    times = iter([0, 50, 100, 102, 200, 203, 300, 304])  # the first call waits for what the training computes
    monkeypatch.setattr(kernel_check.time, "perf_counter", lambda: next(times))
    check.is_due, slots = lambda _: True, table()
    slots.seconds_recomputing()
    for _ in range(4):
        check(*operands, operands[0])
    assert 4 * 3.5 <= slots.seconds_recomputing() < 4 * 3.5 + 1
    assert slots.seconds_recomputing() < 1


def _noting(called, check):
    construct = check.construct

    def note(*tensors):
        called.append(check)
        return construct(*tensors)

    return note
