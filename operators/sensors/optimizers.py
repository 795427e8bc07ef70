"""Several optimizers that make one step, seen as one."""

from collections.abc import Iterator, Sequence
from typing import Any

from mindspore import Parameter, nn

from asd.errors import ConfigError

_COUNTERS = ("global_step", "state_step", "step_t")


class Optimizers(nn.Cell):
    """Several optimizers as one for the parts of a training; it is never called.

    Attributes:
        members: The optimizers.
        parameters: The weights of all.
        global_step: The counter of the last one, which ends the step.
    """

    def __init__(self, members: Sequence[nn.Cell]) -> None:
        super().__init__(auto_prefix=False)
        self.members = tuple(members)
        # Not as attributes of a cell, whose Parameters must have names of their own.
        weights = tuple(weight for each in members for weight in getattr(each, "parameters", ()))
        object.__setattr__(self, "parameters", weights)
        object.__setattr__(self, "global_step", counter_of(members[-1]))

    @property
    def asd_gate(self) -> Any:
        """The gate of the first, which `is_guarded` looks for; None unless all are guarded."""
        gates = [getattr(each, "asd_gate", None) for each in self.members]
        return None if None in gates else gates[0]

    def parameters_and_names(self, name_prefix: str = "", expand: bool = True) -> Iterator[tuple[str, Parameter]]:  # noqa: FBT001, FBT002 - MindSpore's signature
        """Yields the Parameters of all, each once, under its name in its optimizer."""
        found = [pair for each in self.members for pair in each.parameters_and_names(name_prefix, expand)]
        yield from {id(parameter): (name, parameter) for name, parameter in found}.values()


def as_one(optimizer: Any, known: nn.Cell | None) -> nn.Cell | None:
    """Returns `optimizer`, or the `Optimizers` of a list; `known` where it has the same members."""
    if not isinstance(optimizer, (list, tuple, nn.CellList)):
        return optimizer
    members = tuple(optimizer)
    if not members or not all(isinstance(each, nn.Cell) for each in members):
        raise ConfigError("optimizer", optimizer, "it must be an optimizer or a list of optimizers")
    if isinstance(known, Optimizers) and known.members == members:
        return known
    return members[0] if len(members) == 1 else Optimizers(members)


def members_of(optimizer: nn.Cell) -> tuple[nn.Cell, ...]:
    """Returns the optimizers that `optimizer` stands for."""
    return optimizer.members if isinstance(optimizer, Optimizers) else (optimizer,)


def counter_of(optimizer: Any) -> Any:
    """Returns the Parameter in which an optimizer counts its updates; None where it has none."""
    return next((getattr(optimizer, name) for name in _COUNTERS if hasattr(optimizer, name)), None)


def count_of(optimizer: Any) -> int | None:
    """Returns what `optimizer` counts, some from -1; None without a counter. Waits for the graph that makes updates."""
    counter = counter_of(optimizer)
    return int(counter.asnumpy().reshape(-1)[0]) if counter is not None else None


def updates_of(optimizer: Any) -> int:
    """Returns how many updates `optimizer` made, as far as it counts; waits as `count_of`."""
    return max(0, count_of(optimizer) or 0)
