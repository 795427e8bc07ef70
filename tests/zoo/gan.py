"""A generator and a discriminator: two networks, two optimizers, two monitors."""

from typing import Any

from mindspore import Tensor, nn, ops
from networks.tables import Perceptron


class _OfGenerator(nn.Cell):
    def __init__(self, generator, discriminator):
        super().__init__()
        self.generator, self.discriminator = generator, discriminator

    def construct(self, noise):
        return ops.mean(ops.softplus(-self.discriminator(self.generator(noise))))


class _OfDiscriminator(nn.Cell):
    def __init__(self, generator, discriminator):
        super().__init__()
        self.generator, self.discriminator = generator, discriminator

    def construct(self, noise, x):
        made = ops.stop_gradient(self.generator(noise))
        return ops.mean(ops.softplus(-self.discriminator(x))) + ops.mean(ops.softplus(self.discriminator(made)))


class Gan:
    """The generator is the one that is struck; its monitor is the first."""

    def __init__(self, training: Any) -> None:
        self._training = training
        generator = training.outer(lambda: Perceptron(8, 10))
        discriminator = training.outer(lambda: Perceptron(10, 1), struck=False)
        self.networks = [generator, discriminator]
        for each in self.networks:
            each.set_train()
        self.optimizers = [nn.Adam(each.trainable_params(), 1e-3, 0.5) for each in (generator, discriminator)]
        self._losses = _OfGenerator(generator, discriminator), _OfDiscriminator(generator, discriminator)

    def train(self) -> None:
        """All steps, the discriminator's first."""
        monitors = self._training.monitors or [None, None]
        for monitor, network, optimizer in zip(monitors, self.networks, self.optimizers, strict=True):
            if monitor is not None:
                monitor.attach(network, optimizer)
        steps = [nn.TrainOneStepCell(*each) for each in zip(self._losses, self.optimizers, strict=True)]
        steps = [each if of is None else of.watch_step(each) for of, each in zip(monitors, steps, strict=True)]
        for x, y in self._training.batches:
            noise, real = Tensor(x), Tensor(y)
            _judged(monitors[1], steps[1](noise, real))
            self._training.begin()  # only now, for the discriminator's step calls the generator too
            self._training.end(_judged(monitors[0], steps[0](noise)))


def _judged(monitor: Any, loss: Any) -> Any:
    if monitor is not None:
        monitor.step(loss)
    return loss
