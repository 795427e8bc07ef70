"""What tests of checked calls share: faults between an operator and its check."""

import mindspore as ms
from mindspore import Tensor, nn, ops


def _hit(x, by):
    where = ops.one_hot(Tensor([5], ms.int32), x.size, Tensor(1.0, ms.float32), Tensor(0.0, ms.float32))
    return x + where.reshape(x.shape).astype(x.dtype) * by


class _WrongResult(nn.Cell):
    def __init__(self, op, by):
        super().__init__(auto_prefix=False)
        self.op, self.by = op, by

    def construct(self, *operands):
        return _hit(self.op(*operands), self.by)


class _WrongGradient(nn.Cell):
    def __init__(self, gradients, part, by):
        super().__init__(auto_prefix=False)
        self.gradients, self.part, self.by = gradients, part, by

    def construct(self, a, b, dout):
        dx, dw = self.gradients(a, b, dout)
        if self.part == "_dx":
            dx = _hit(dx, self.by)
        else:
            dw = _hit(dw, self.by)
        return dx, dw


class _WrongGradientOfOne(nn.Cell):
    def __init__(self, gradients, by):
        super().__init__(auto_prefix=False)
        self.gradients, self.by = gradients, by

    def construct(self, x, dout):
        (dx,) = self.gradients(x, dout)
        return (_hit(dx, self.by),)


def strike(call, part, by, *, unary=False):
    """Makes one element of a result of the checked call wrong: of y with the part "", else of a gradient."""
    if part == "":
        call.op = _WrongResult(call.op, by)
    elif unary:
        call.gradients = _WrongGradientOfOne(call.gradients, by)
    else:
        call.gradients = _WrongGradient(call.gradients, part, by)
