"""Asks all ranks what they saw in a refused step, to tell whose fault it was.

Every rank knows of the refusal, for the gate agreed on it, so all of them take part in the exchange. It carries a few
kilobytes, and only in such a step.
"""

from __future__ import annotations

from collections.abc import Mapping

from asd.attribution import Attribution, Seen, attribute, pack_seen, unpack_seen
from asd.operators.exchange import Exchange

__all__ = ["attribution_of"]


def attribution_of(exchange: Exchange, seen: Mapping[str, Seen]) -> Attribution | None:
    """Whose fault it was; None when there is no other rank. A call of all ranks.

    Args:
        exchange: The ranks.
        seen: What this rank saw, per checkpoint.

    Raises:
        RankLostError: A rank did not answer, see `Exchange.gather`.
    """
    if exchange.size == 1:
        return None
    messages = exchange.gather(pack_seen(seen))
    return attribute({rank: unpack_seen(message) for rank, message in enumerate(messages)})
