"""Gathers what all ranks saw in a refused step, to name the rank at fault."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from asd.diagnosis.attribution import Attribution, Seen, pack_seen, unpack_seen
from asd.diagnosis.flow import PART, RankReport, origin_among, report_of, whose_fault
from asd.diagnosis.groups import Groups, named
from asd.diagnosis.weights import Difference, compare
from asd.errors import and_more
from asd.operators.private.layout import operators_are_divided
from asd.operators.ranks.exchange import Exchange
from asd.rules.reading import AVERAGED, Reading


def attribution_of(exchange: Exchange, own: Mapping[str, Seen], averaged: Mapping[str, Seen]) -> Attribution | None:
    """Returns the ranks at fault; None when there is no other rank. All ranks must call it.

    Args:
        exchange: The ranks, and their replica groups.
        own: Values seen before the sum over ranks, per checkpoint.
        averaged: Means over the ranks, which should agree in a replica group. They count where no rank has a local
            fault: one whose copy is wrong while others are right.

    Raises:
        RankLostError: A rank did not answer, see `Exchange.gather`.
    """
    if exchange.size == 1:
        return None
    groups, near = exchange.groups, exchange.near
    slices = {name for name in own if _is_slice(groups, name)}
    averaged = {**averaged, **{PART + name: own[name] for name in slices}}
    own = {name: seen for name, seen in own.items() if name not in slices}
    # A tensor that is sharded over ranks cannot be compared: each rank's shard gets its own name.
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
    # Ranks with other weights do not see a mean that is wrong on all that have it.
    wrong = next((PART + name for name, seen in averaged.items() if seen.broken), "")
    reports = _told(exchange, report._replace(mean=_broken_part(averaged) or report.mean or wrong))
    parts = [rank for rank, each in enumerate(reports) if _is_part(each.mean)]
    found = origin_among([each._replace(mean="") if _is_part(each.mean) else each for each in reports], groups)
    return found if found.ranks else _of_parts(parts) or found


def _is_slice(groups: Groups, name: str) -> bool:
    """Returns whether it is a rank's slice of a gradient that MindSpore summed over ranks inside its graph."""
    return operators_are_divided() and groups.is_apart(name)


def _is_part(name: str) -> bool:
    return name.startswith(PART)


def _broken_part(seen: Mapping[str, Seen]) -> str:
    return next((name for name in seen if _is_part(name) and seen[name].broken), "")


def _of_parts(ranks: Sequence[int]) -> Attribution | None:
    """Returns an attribution to all `ranks`: a wrong shard of a sum, as after a reduce-scatter, names no rank."""
    reason = "it was seen only after a sum over ranks, which names no rank"
    return Attribution(None, "", tuple(ranks), reason, shared=True) if ranks else None


def words_of_vanished(exchange: Exchange, gone: Sequence[Reading], first: Sequence[Reading]) -> list[RankReport]:
    """Returns each rank's first site with a finding that a rerun did not confirm, and its first mean.

    All ranks must call it.

    Args:
        exchange: The ranks.
        gone: Suspicious readings of the first run that the second run does not have.
        first: All readings of the first run.

    Raises:
        RankLostError: A rank did not answer.
    """
    groups, rank = exchange.groups, exchange.rank
    summed = {each.checkpoint: each.checkpoint for each in first if each.kind == AVERAGED}
    summed |= {each.checkpoint: PART + each.checkpoint for each in first if _is_slice(groups, each.checkpoint)}
    names = [each.checkpoint for each in gone]
    mean = next((summed[name] for name in names if name in summed), "")
    if groups.whole:
        return _told(exchange, RankReport(next((name for name in names if name not in summed), ""), mean=mean))
    seen = (each for each in first if each.checkpoint not in summed)
    own = {each.checkpoint: Seen(each.order, each.value, each.checkpoint in names) for each in seen}
    return _told(exchange, report_of(rank, {rank: own}, {rank: {}})._replace(mean=mean))


def whose_link(exchange: Exchange, names: Sequence[str], **sums: Any) -> tuple[Difference, list[int]]:
    """Returns what differs in a reduction with wrong sums, and its ranks. All ranks must call it.

    Args:
        exchange: All ranks.
        names: Names of the n wrong gradients.
        sums: `group`, in which this rank takes part; `shares` of shape (2, n) and bits of `outputs`, see `LinkSums`.

    Raises:
        RankLostError: A rank did not answer.
    """
    words = exchange.tell(**sums)
    groups = [[i for i, word in enumerate(words) if word["group"] == each["group"]] for each in words]
    wrong = (each for each in groups if not _is_sum([words[rank]["shares"] for rank in each]))
    ranks = next(wrong, groups[exchange.rank])
    about = f"what a reduction over {named(ranks)} delivered is not the sum of what went in"
    found = compare([words[rank]["outputs"] for rank in ranks], names, ranks)
    alike = Difference((), tuple(names), f"alike on all of them: {and_more(names)}")
    return (found or alike)._replace(reason=f"{about}, {(found or alike).reason}"), ranks


def _is_sum(shares: Sequence[Any]) -> bool:
    difference, allowed = np.sum(shares, 0)
    return bool((np.abs(difference) <= allowed).all())


def _told(exchange: Exchange, word: RankReport) -> list[RankReport]:
    """Gathers the reports of all ranks; most are empty."""
    parcel = b"" if word == RankReport() else json.dumps(word).encode()
    return [RankReport(*json.loads(each)) if each else RankReport() for each in exchange.gather(parcel)]
