"""Self-tests of reruns: one that confirms corrects a transient fault, one that attributes names the cause."""

import functools
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from asd.config import Config
from asd.event import Event
from asd.operators.gate.slots import renew, table
from asd.operators.monitor.step_monitor import StepMonitor
from asd.operators.selftest.outcome import Report, expect, try_bare
from asd.operators.selftest.values import DTYPES, expect_alike, tensor

_STEPS, _BAD = 28, 26  # as many as the detectors need to know a training
_FEW, _EARLY = 5, 3  # for the rule that needs to know nothing


def test_repeating(report: Report) -> None:
    """Tests a transient fault in each type of the network, the rest in float32."""
    for dtype in DTYPES:
        report.check("replay", "of what happened once", _replay, dtype, False, dtype=dtype)
    report.check("replay", "of what happens always", _replay, "float32", True, dtype="float32")
    report.check("second look", "at what happened once", _look, dtype="float32")


class Net(nn.Cell):
    """Two layers and a norm; the output is the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Dense(8, 8), nn.LayerNorm((8,)), nn.Dense(8, 4)

    def construct(self, x, y):
        """Returns the mean square of the distance to y."""
        return ops.mean(ops.square(ops.cast(self.last(self.norm(self.first(x))), ms.float32) - y))


def fill(net: nn.Cell) -> nn.Cell:
    """Sets weights that are equal each time."""
    random = np.random.default_rng(11)
    for weight in net.trainable_params():
        weight.set_data(Tensor(random.normal(0.2, 0.3, weight.shape).astype(np.float32)))
    return net.set_train()


def batch_of(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of a step."""
    random = np.random.default_rng([step % 3, 0])
    return random.normal(size=(6, 8)).astype(np.float32), random.normal(size=(6, 4)).astype(np.float32)


def state_of(*cells: nn.Cell) -> list[np.ndarray]:
    """Weights, and all that the optimizer keeps."""
    return [np.array(each.asnumpy()) for cell in cells for each in cell.get_parameters()]


class _Story:
    """A training in which the first run of one step, or every run of it, is wrong.

    Args:
        config: How to detect.
        dtype: Type of the network.
        steps: Number of steps.
        bad: The wrong step; 0 for none.
        factor: Factor of its gradients.
        always: Whether every run of it is wrong.
        skip: A step that is left out; 0 for none.
    """

    def __init__(
        self,
        config: Config,
        dtype: str,
        steps: int,
        *,
        bad: int = 0,
        factor: float = 1.0,
        always: bool = False,
        skip: int = 0,
    ) -> None:
        net = fill(Net())
        if dtype != "float32":
            for layer in (net.first, net.norm, net.last):
                layer.to_float(getattr(ms, dtype))
        optimizer = nn.Adam(net.trainable_params(), 1e-4)
        self.events: list[Event] = []
        monitor = StepMonitor(config, sinks=[self.events.append])
        monitor.attach(net, optimizer)
        differentiate = ops.value_and_grad(self._scaled(net), None, optimizer.parameters)
        gradients = ms.jit(differentiate) if ms.get_context("mode") == ms.GRAPH_MODE else differentiate
        factors: list[float] = []

        def run(x, y):
            scale = (factors[0] if always else factors.pop()) if factors else 1.0
            loss, found = gradients(x, y, Tensor(scale, ms.float32))
            optimizer(found)
            return loss

        step = monitor.watch_step(run)
        self.losses: list[np.ndarray] = []
        for number in range(1, steps + 1):
            if number == skip:
                continue
            factors[:] = [factor] if number == bad else []
            x, y = batch_of(number)
            loss = step(tensor(x, "float32"), Tensor(y))
            monitor.step(loss)
            self.losses.append(np.array(loss.asnumpy()))
        factors.clear()
        self.state = state_of(net, optimizer)
        monitor.close()

    @staticmethod
    def _scaled(net: nn.Cell) -> Any:
        def loss(x, y, scale):
            return net(x, y) * scale

        return loss

    def told(self) -> list[str]:
        return sorted({f"step {event.step}: {event.kind} {event.verdict}".strip() for event in self.events})


@functools.cache
def _unchecked(dtype: str, steps: int, skip: int = 0) -> _Story:
    """Returns a training without any check; `skip` is the step whose update is to be refused."""
    if dtype != "float32":
        try_bare(f"a product in {dtype}", _multiply, dtype)  # PyNative tells of what it lacks too late
    made: _Story = try_bare(
        f"a training in {dtype}", lambda: _Story(Config(protection="document", enable=0), dtype, steps, skip=skip)
    )
    return made


def _multiply(dtype: str) -> None:
    x = tensor(np.ones((4, 4), np.float32 if dtype == "bfloat16" else dtype), dtype)
    ms.jit(_product)(x).asnumpy()


def _product(x):
    return ops.cast(ops.matmul(x, x), ms.float32)


def _replay(dtype: str, always: bool) -> None:  # noqa: FBT001
    bare = _unchecked(dtype, _FEW, _EARLY)
    renew()
    config = Config(protection="document", enable=1, on_anomaly="skip", upper=(1000, 100), replay=True)
    struck = _Story(config, dtype, _FEW, bad=_EARLY, factor=1e7, always=always)
    verdict = "undetermined" if always else "transient"
    expected = [f"step {_EARLY}: anomaly", f"step {_EARLY}: replay {verdict}"]
    expect(struck.told() == expected, f"expected is {'; '.join(expected)}, it says {'; '.join(struck.told())}")
    expect(all(event.harmless for event in struck.events), "the update of the bad step was not refused")
    expect(not table().replaying, "the table still has a rerun")
    expect_alike("weights and moments, and those of a training without the bad step", struck.state, bare.state)


def _look() -> None:
    healthy = _unchecked("float32", _STEPS)
    renew()
    config = Config(protection="document", enable=1, on_anomaly="skip", rule="adaptive", confirm=0.01)
    healed = _Story(config, "float32", _STEPS, bad=_BAD, factor=0.01)
    expected = [f"step {_BAD}: anomaly", f"step {_BAD}: replay transient"]
    expect(healed.told() == expected, f"expected is {'; '.join(expected)}, it says {'; '.join(healed.told())}")
    expect_alike("losses, and those of a healthy training without checks", healed.losses, healthy.losses)
    expect_alike("weights and moments, and those of a healthy training", healed.state, healthy.state)
