"""Asks all ranks what they saw in a refused step, to tell whose fault it was."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from asd.operators.ranks.exchange import Exchange
from asd.rules.diagnosis.attribution import Attribution, Seen, pack_seen, unpack_seen
from asd.rules.diagnosis.flow import RankReport, origin_among, report_of, whose_fault
from asd.rules.diagnosis.groups import Groups
from asd.rules.readings.reading import AVERAGED, Reading

PART = "part."
"""Stands before the name of a gradient of which each rank has another part, summed over ranks before."""


def attribution_of(
    exchange: Exchange,
    own: Mapping[str, Seen],
    averaged: Mapping[str, Seen],
) -> Attribution | None:
    """Whose fault it was; None when there is no other rank. A call of all ranks.

    Args:
        exchange: The ranks, and which of them hold the same.
        own: What this rank saw alone, per checkpoint.
        averaged: The means over the ranks, which should be the same on all that hold the same. They count where no rank
            has a fault of its own: one whose copy is bad while others are not.

    Raises:
        RankLostError: A rank did not answer, see `Exchange.gather`.
    """
    if exchange.size == 1:
        return None
    groups, near = exchange.groups, exchange.near
    # What is another tensor on each rank can't be compared: it gets a name of its own.
    names = {name: f"{name} of rank {exchange.rank}" if groups.is_apart(name) else name for name in own}
    first, second = pack_seen({names[name]: seen for name, seen in own.items()}), pack_seen(averaged)
    messages = near.gather(len(first).to_bytes(4, "little") + first + second)
    ends = [4 + int.from_bytes(message[:4], "little") for message in messages]
    told = list(zip(groups.members, messages, ends, strict=True))
    alone = {rank: unpack_seen(message[4:end]) for rank, message, end in told}

    summed = {rank: unpack_seen(message[end:]) for rank, message, end in told}
    means = {rank: {name: seen[name] for name in seen if not _is_part(name)} for rank, seen in summed.items()}
    if groups.whole:
        found = whose_fault(alone, lambda: means)
        return found if found.ranks else _of_parts([rank for rank in summed if _broken_part(summed[rank])]) or found
    report = report_of(exchange.rank, alone, means)
    return _among_parts(_told(exchange, report._replace(mean=_broken_part(averaged) or report.mean)), groups)


def _is_part(name: str) -> bool:
    return name.startswith(PART)


def _broken_part(seen: Mapping[str, Seen]) -> str:
    return next((name for name in seen if _is_part(name) and seen[name].broken), "")


def _among_parts(reports: Sequence[RankReport], groups: Groups) -> Attribution:
    parts = [rank for rank, report in enumerate(reports) if _is_part(report.mean)]
    found = origin_among([report._replace(mean="") if _is_part(report.mean) else report for report in reports], groups)
    return found if found.ranks else _of_parts(parts) or found


def _of_parts(ranks: Sequence[int]) -> Attribution | None:
    """A part of a sum, as after a reduce-scatter, may be wrong through any rank."""
    reason = "it was seen only behind a sum over ranks, which names none"
    return Attribution(None, "", tuple(ranks), reason, shared=True) if ranks else None


def words_of_vanished(exchange: Exchange, gone: Sequence[Reading], first: Sequence[Reading]) -> list[RankReport]:
    """Of each rank where it began what a second run of a step did not show again; a call of all ranks.

    Args:
        exchange: The ranks.
        gone: What was suspicious in the first run and is not in the second.
        first: All that the first run showed.

    Raises:
        RankLostError: A rank did not answer.
    """
    names = {reading.checkpoint for reading in gone}
    own = {
        each.checkpoint: Seen(each.order, each.value, each.checkpoint in names)
        for each in first
        if each.kind != AVERAGED
    }
    mean = next((reading.checkpoint for reading in gone if reading.kind == AVERAGED), "")
    rank = exchange.rank
    word = report_of(rank, {rank: own}, {rank: {}})
    return _told(exchange, word._replace(mean=mean))


def _told(exchange: Exchange, word: RankReport) -> list[RankReport]:
    """What every rank has to say; most of them nothing."""
    parcel = b"" if word == RankReport() else json.dumps(word).encode()
    return [RankReport(*json.loads(each)) if each else RankReport() for each in exchange.gather(parcel)]
