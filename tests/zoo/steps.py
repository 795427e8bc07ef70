"""The styles in which a step is written by hand: each makes a callable (x, y) -> loss."""

import mindspore as ms
from mindspore import amp, nn, ops


class Step(nn.Cell):
    """`value_and_grad`, and what one may do with gradients before the optimizer gets them.

    The batch is divided into `parts`, whose gradients are summed; `clip` clips their global norm to 1, and `fault`
    strikes the gradient number `struck`.
    """

    def __init__(self, loss, optimizer, *, scale=1.0, clip=False, parts=1, fault=None, struck=0):
        super().__init__()
        self.loss, self.optimizer, self.scale, self.clip, self.parts = loss, optimizer, scale, clip, parts
        self.fault, self.struck = fault, struck
        self.differentiated = ops.value_and_grad(self.scaled, None, optimizer.parameters)

    def scaled(self, x, y):
        return self.loss(x, y) * self.scale

    def construct(self, x, y):
        size = x.shape[0] // self.parts
        loss, gradients = self.differentiated(x[:size], y[:size])
        for i in range(1, self.parts):
            more, others = self.differentiated(x[i * size : (i + 1) * size], y[i * size : (i + 1) * size])
            loss, gradients = loss + more, _sum(gradients, others)
        if self.fault is not None:
            at = self.struck
            gradients = (*gradients[:at], self.fault(gradients[at]), *gradients[at + 1 :])
        factor = 1.0 / (self.scale * self.parts)
        if factor != 1.0:
            gradients = _times(gradients, factor)
        if self.clip:
            gradients = ops.clip_by_global_norm(gradients, 1.0)
        return ops.depend(loss * factor, self.optimizer(gradients))


def _sum(gradients, others):
    out = ()
    for i in range(len(gradients)):
        out = (*out, gradients[i] + others[i])
    return out


def _times(gradients, factor):
    out = ()
    for each in gradients:
        out = (*out, each * factor)
    return out


class DynamicStep(nn.Cell):
    """With the loss scaler of `mindspore.amp`, which skips what overflowed."""

    def __init__(self, loss, optimizer, scaler):
        super().__init__()
        self.loss, self.optimizer, self.scaler = loss, optimizer, scaler
        self.differentiated = ops.value_and_grad(self.scaled, None, optimizer.parameters)

    def scaled(self, x, y):
        return self.scaler.scale(self.loss(x, y))

    def construct(self, x, y):
        loss, gradients = self.differentiated(x, y)
        gradients = self.scaler.unscale(gradients)
        finite = amp.all_finite(gradients)
        self.scaler.adjust(finite)
        if finite:
            loss = ops.depend(loss, self.optimizer(gradients))
        return loss


def python_loop(loss, optimizer, *, scale=1.0, fault=None, struck=0):
    """What a PyNative user writes: a function, not a Cell."""

    def scaled(x, y):
        return loss(x, y) * scale

    differentiated = ms.value_and_grad(scaled, None, optimizer.parameters)

    def step(x, y):
        value, gradients = differentiated(x, y)
        gradients = list(gradients)
        if fault is not None:
            gradients[struck] = fault(gradients[struck])
        optimizer(tuple(gradient / scale for gradient in gradients) if scale != 1.0 else tuple(gradients))
        return value / scale

    return step


def jit_forward(loss, optimizer):
    """The forward pass compiled, gradients and optimizer outside."""

    @ms.jit
    def forward(x, y):
        return loss(x, y)

    differentiated = ms.value_and_grad(forward, None, optimizer.parameters)

    def step(x, y):
        value, gradients = differentiated(x, y)
        optimizer(gradients)
        return value

    return step


def jit_step(loss, optimizer):
    """The whole step in one compiled function."""
    differentiated = ms.value_and_grad(loss, None, optimizer.parameters)

    @ms.jit
    def step(x, y):
        value, gradients = differentiated(x, y)
        return ops.depend(value, optimizer(gradients))

    return step
