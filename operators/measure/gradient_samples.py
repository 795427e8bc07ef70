"""The vendor's combined scheme: gradients of parameters are sampled before the ranks are summed up."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import Parameter, nn

from asd.operators.measure.own_gradients import own_gradients
from asd.operators.table.site import Site
from asd.operators.table.slots import table
from asd.rules.readings.reading import SAMPLE

__all__ = ["sample_gradients"]


def sample_gradients(holder: nn.Cell, weights: Sequence[Parameter], *, every: int) -> list[Site]:
    """Looks at gradients where they are still this rank's own: before a reducer, or else the optimizer.

    Args:
        holder: What takes their mean over the ranks; the optimizer where that is not known.
        weights: What the gradients it is called with belong to.
        every: Of the parameters with two dimensions or more, the first and then every so many-th.

    Returns:
        The checkpoints, called `gradient.` and the name of the parameter; those that are there already, if any.
    """
    look = own_gradients(holder)
    if not look.sites_of(SAMPLE):
        matrices = [(i, parameter) for i, parameter in enumerate(weights) if parameter.ndim > 1]
        chosen = matrices[::every]
        look.add([(i, table().new_site(f"gradient.{parameter.name}", SAMPLE)) for i, parameter in chosen])
    return look.sites_of(SAMPLE)
