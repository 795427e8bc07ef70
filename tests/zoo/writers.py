"""What programs write between the steps of a training: schedules of their own, and a state from before."""

from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, load_param_into_net, nn


def schedule(step: int, loss: Any, optimizer: nn.Optimizer, _monitors: Any) -> None:
    """Writes the learning rate and the weight of the loss."""
    optimizer.learning_rate.set_data(Tensor(np.float32(2e-3 * (1 + np.cos(step / 6)))))
    loss.weight.set_data(Tensor(np.float32(1 + step / 40)))


def planned(step: int, loss: Any, _optimizer: nn.Optimizer, _monitors: Any) -> None:
    """Multiplies the loss by 20 in step 10."""
    loss.weight.set_data(Tensor(np.float32(20 if step >= 10 else 1)))


def announced(step: int, loss: Any, optimizer: nn.Optimizer, monitors: Any) -> None:
    """The same, and says so."""
    for monitor in monitors if step == 10 else ():
        monitor.expect_change()
    planned(step, loss, optimizer, monitors)


class Rewind:
    """Keeps all before one step, and loads it before a later one, as who goes back to a checkpoint."""

    keeps, loads = 6, 11

    def __init__(self) -> None:
        self._kept: dict[str, Parameter] = {}

    def __call__(self, step: int, loss: Any, optimizer: nn.Optimizer, _monitors: Any) -> None:
        """Before each step."""
        if step == self.keeps:
            held = {each.name: each for each in (*optimizer.parameters, *optimizer.get_parameters())}
            self._kept = {name: Parameter(Tensor(each.asnumpy().copy()), name=name) for name, each in held.items()}
        elif step == self.loads:
            load_param_into_net(optimizer, self._kept)
