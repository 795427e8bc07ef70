"""Asks all ranks what they saw in a refused step, to tell whose fault it was.

Every rank knows of the refusal, for the gate agreed on it, so all of them take part in the exchange. It carries a few
kilobytes, and only in such a step.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping

from asd.attribution import Attribution, Seen, attribute
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
    messages = exchange.gather(zlib.compress(json.dumps(seen).encode()))
    ranks = [json.loads(zlib.decompress(message)) for message in messages]
    return attribute({rank: {name: Seen(*each) for name, each in told.items()} for rank, told in enumerate(ranks)})
