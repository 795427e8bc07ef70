"""Asks all ranks what they saw in a refused step, to tell whose fault it was.

Every rank knows of the refusal, for the gate agreed on it, so all of them take part in the exchange. It carries a few
kilobytes, and only in such a step.
"""

from __future__ import annotations

from collections.abc import Mapping

from asd.diagnosis.attribution import Attribution, Seen, pack_seen, unpack_seen, whose_fault
from asd.operators.ranks.exchange import Exchange

__all__ = ["attribution_of"]


def attribution_of(exchange: Exchange, own: Mapping[str, Seen], averaged: Mapping[str, Seen]) -> Attribution | None:
    """Whose fault it was; None when there is no other rank. A call of all ranks.

    Args:
        exchange: The ranks.
        own: What this rank saw alone, per checkpoint.
        averaged: The means over the ranks, which should be the same on all of them. They count where no rank has a
            fault of its own: one whose copy is bad while others are not.

    Raises:
        RankLostError: A rank did not answer, see `Exchange.gather`.
    """
    if exchange.size == 1:
        return None
    first, second = pack_seen(own), pack_seen(averaged)
    messages = exchange.gather(len(first).to_bytes(4, "little") + first + second)
    ends = [4 + int.from_bytes(message[:4], "little") for message in messages]
    told = list(zip(messages, ends, strict=True))
    alone = {rank: unpack_seen(message[4:end]) for rank, (message, end) in enumerate(told)}
    return whose_fault(alone, lambda: {rank: unpack_seen(message[end:]) for rank, (message, end) in enumerate(told)})
