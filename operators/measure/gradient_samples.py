"""The vendor's combined scheme in a training: gradients of parameters are sampled before the ranks are summed up.

They are judged by the combined rule. Every ten steps the ranks tell one another about their strikes, and a strike-out
of one switches the checksum on for all of them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from mindspore import Parameter, nn

from asd.operators.measure.own_gradients import own_gradients
from asd.operators.ranks.exchange import Exchange
from asd.operators.table.site import Site
from asd.operators.table.slots import table
from asd.rules.readings.reading import SAMPLE
from asd.rules.step.combined_scheme import Action, CombinedScheme, Message, Poll

__all__ = ["POLL_STEPS", "poll", "sample_gradients"]

_LOG = logging.getLogger("asd.combined")
POLL_STEPS = 10
"""Steps from one exchange with the other ranks to the next."""


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


def poll(scheme: CombinedScheme, own: Message, exchange: Exchange) -> Poll:
    """Says what this rank has to say and does what the ranks agree on; a call of all ranks.

    Raises:
        RankLostError: A rank did not answer.
    """
    told = [Message(*json.loads(message)) for message in exchange.gather(json.dumps(own).encode())]
    agreed = scheme.poll(told)
    if agreed.action is Action.START:
        _LOG.warning(
            "Feature value detection strikes out on rank %s, CheckSum will be enabled globally.",
            ", ".join(map(str, agreed.ranks)),
        )
    elif agreed.action is Action.STOP:
        _LOG.warning("Global CheckSum result is %d", bool(agreed.ranks))
        if exchange.rank in agreed.ranks:
            _LOG.error("CheckSum detects MatMul error on rank %d", exchange.rank)
    return agreed
