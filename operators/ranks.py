"""Asks all ranks what they saw in a refused step, to tell whose fault it was.

Every rank knows of the refusal, for the gate agreed on it, so all of them take part in the exchange. It carries a few
kilobytes, and only in such a step.
"""

from __future__ import annotations

from collections.abc import Mapping

from asd.attribution import Attribution, Seen, attribute, pack_seen, unpack_seen
from asd.operators.exchange import Exchange

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
    told = enumerate(zip(messages, ends, strict=True))
    found = attribute({rank: unpack_seen(message[4:end]) for rank, (message, end) in told})
    if found.ranks:
        return found
    told = enumerate(zip(messages, ends, strict=True))
    in_mean = attribute({rank: unpack_seen(message[end:]) for rank, (message, end) in told})
    # All of them alike: no rank is odd.
    return found if len(in_mean.ranks) in (0, exchange.size) else _of_mean(in_mean)


def _of_mean(found: Attribution) -> Attribution:
    """Some ranks have a bad mean and the others a good one."""
    ranks = found.ranks
    if len(ranks) == 1:
        where = f" at {found.checkpoint}" if found.checkpoint else ""
        reason = f"rank {ranks[0]} broke its limit{where}; its mean alone is bad: the device, or the way to it"
        return Attribution(ranks[0], found.checkpoint, (), reason, in_mean=True)
    # A bad part was passed on, and whose it was first can't be told.
    names = ", ".join(map(str, ranks))
    reason = f"the mean is bad on ranks {names} and good on the others: the ways between them are suspect too"
    return Attribution(None, "", ranks, reason, in_mean=True)
