"""Finds the replica groups: by MindSpore's layout, by `tell_shard`, or by the initial weights."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from mindspore import Parameter, nn

from asd.config import is_simulated
from asd.diagnosis.groups import Groups, Shard, everybody
from asd.errors import ConfigError
from asd.operators.private.layout import division, operators_are_divided
from asd.operators.private.names import find
from asd.operators.ranks.exchange import Exchange
from asd.operators.ranks.weights import attempt, hashes_of, total_of

_NOT_YET = "MindSpore shards the network when it compiles the first step"
_UNKNOWN = "no two ranks began with the same weights; call asd.operators.tell_shard"


class _Known:
    """Knowledge of this process about the shards of the job."""

    told: tuple[str, int, int, tuple[tuple[str, str], ...]] | None = None
    groups: Groups | None = None


def tell_shard(
    part: str | int = "", *, stage: int = 0, replica: int | None = None, weights: Mapping[str, str | int] | None = None
) -> None:
    """Declares the shard that this rank holds, for a training that shards its network by its own process groups.

    Every rank calls it, before the training is attached or begins. Ranks with the same part and stage are a replica
    group: they are compared, their weights must stay alike, and they can re-run one another's steps. MindSpore's own
    parallel modes need no such call.

    Args:
        part: Shard of the layers that this rank holds, such as its index in tensor parallel.
        stage: Pipeline stage of this rank, from 0.
        replica: Index of this rank among the ranks with the same part and stage, from 0. Ranks with the same index work
            on the same batch. If not given, the order of the ranks decides.
        weights: Weights with other replicas than the rest of this part: a regular expression on their names, and their
            part. The first match counts.

    Raises:
        ConfigError: An argument is not valid.

    Examples:
        Four ranks, tensor parallel 2 by data parallel 2, with norms that every rank holds whole:

        >>> tell_shard(rank % 2, weights={"norm": "whole"})  # doctest: +SKIP

        Data parallel with another expert on every rank:

        >>> tell_shard(weights={"experts": rank})  # doctest: +SKIP
    """
    for name, value in (("stage", stage), ("replica", 0 if replica is None else replica)):
        if type(value) is not int or value < 0:
            raise ConfigError(name, value, "it must be a whole number from 0 on")
    if type(part) not in (str, int):
        raise ConfigError("part", part, "it must be a text or a whole number")
    for pattern, other in (weights or {}).items():
        try:
            re.compile(pattern)
        except (re.error, TypeError) as error:
            raise ConfigError("weights", pattern, f"it must be a regular expression ({error})") from error
        if type(other) not in (str, int):
            raise ConfigError("weights", other, "it must be a text or a whole number")
    pairs = tuple((pattern, str(other)) for pattern, other in (weights or {}).items())
    _Known.told = str(part), stage, -1 if replica is None else replica, pairs


def find_groups(exchange: Exchange, weights: Iterable[Parameter], **settings: object) -> Groups:
    """Returns the replica groups. All ranks must call it where there are several.

    Args:
        exchange: All ranks.
        weights: Weights that this rank trains.
        **settings: Those by which ranks exchange anything: with other ones on some they would wait for one another.

    Raises:
        ConfigError: A setting differs over the ranks, or only some ranks have called `tell_shard`.
        RankLostError: A rank did not answer.
    """
    _Known.groups = groups = _find(exchange, list(weights), settings)
    return groups


def _find(exchange: Exchange, weights: Sequence[Parameter], settings: Mapping[str, object]) -> Groups:
    rank, size = exchange.rank, exchange.size
    if size == 1:
        return everybody(1, 0, "")
    mode = division("parallel_mode")
    own_only = {weight.name for weight in weights if weight.layerwise_parallel}
    alike = everybody(size, rank, mode, lambda name: f"rank {rank}" if name in own_only else "all")
    if is_simulated():  # there is no other rank to ask
        return alike if not operators_are_divided() else _each_alone(size, rank, _NOT_YET)
    by_weights = mode not in ("data_parallel", "semi_auto_parallel", "auto_parallel")
    held, failure = attempt(_held, weights) if by_weights and _Known.told is None else ([], "")
    words = exchange.tell(told=_Known.told, held=held or ["", failure], settings=settings)
    for (name, value), (other, word) in product(settings.items(), enumerate(words)):
        if value != (found := word["settings"][name]):
            raise ConfigError(name, value, f"rank {other} has {found!r}, and all ranks need the same")
    silent = [each for each, word in enumerate(words) if word["told"] is None]
    if not silent:
        return _as_told([word["told"] for word in words], rank)
    if len(silent) < size:
        said = f"told on {size - len(silent)} of {size} ranks, not on rank {silent[0]}"
        raise ConfigError("tell_shard", said, "call it on every rank or on none")
    if not by_weights:
        return alike if mode == "data_parallel" else _each_alone(size, rank, _NOT_YET)
    return _by_weights(words, rank)


def _by_weights(words: Sequence[Mapping[str, Any]], rank: int) -> Groups:
    """Returns the groups of ranks that began with the same weights."""
    size, failures = len(words), [f"on rank {i} {each}" for i, word in enumerate(words) for each in word["held"][1:]]
    if failures:
        return _each_alone(size, rank, failures[0])
    kinds = list(dict.fromkeys(word["held"][0] for word in words))
    if len(kinds) == 1:
        return everybody(size, rank, "they began with the same weights")
    if len(kinds) == size:
        return _each_alone(size, rank, _UNKNOWN)
    parts = [str(kinds.index(word["held"][0])) for word in words]
    return Groups([Shard(part=part, labels=(part,)) for part in parts], rank, "ranks with the same initial weights")


def _each_alone(size: int, rank: int, source: str) -> Groups:
    return Groups([Shard(part=str(each)) for each in range(size)], rank, source)


def _held(weights: Sequence[Parameter]) -> list[str]:
    """Returns a hash of names, shapes, types and bits; equal on two ranks that hold the same weights."""
    shapes = repr([(weight.name, weight.shape, str(weight.dtype)) for weight in weights])
    return [f"{total_of([*shapes.encode(), *hashes_of(weights)]):x}"]


def _as_told(told: Sequence[Any], rank: int) -> Groups:
    def label(part: str, stage: int, pattern: str = "") -> str:
        return f"stage {stage}, {pattern or 'all'}: {part}"

    shards = [
        Shard(stage, part, replica, (label(part, stage), *(label(other, stage, each) for each, other in pairs)))
        for part, stage, replica, pairs in told
    ]
    part, stage, _, pairs = told[rank]

    def label_of(name: str) -> str:
        return next((label(other, stage, each) for each, other in pairs if re.search(each, name)), label(part, stage))

    return Groups(shards, rank, "told by tell_shard", label_of)


def groups_of_layout(exchange: Exchange, cell: nn.Cell | None, weights: Iterable[Parameter]) -> Groups | None:
    """Returns the replica groups by MindSpore's layout of the weights of a compiled cell. All ranks must call it.

    Returns:
        The groups; None where MindSpore did not shard the network, or the layout is not known on every rank.

    Raises:
        RankLostError: A rank did not answer.
    """
    alone = exchange.size == 1 or not operators_are_divided() or is_simulated()
    if alone or _Known.told is not None or find("get_parameter_redundancy") is None:
        return None
    known = cell.parameter_layout_dict if cell is not None else {}
    layout = {weight.name: list(known[weight.name]) for weight in weights if weight.name in known}
    stages = division("pipeline_stages")
    if not all(word["layout"] for word in exchange.tell(layout=bool(layout))):
        return None
    stage = exchange.rank * stages // exchange.size
    shard, label_of = shard_of_layout(layout, exchange.rank, stage, stage * exchange.size // stages)
    words = exchange.tell(part=shard.part, stage=stage, labels=shard.labels)
    shards = [Shard(word["stage"], word["part"], -1, tuple(word["labels"])) for word in words]
    _Known.groups = groups = Groups(shards, exchange.rank, "MindSpore's layout", label_of.get)  # type: ignore[arg-type]
    return groups


def shard_of_layout(layout: Mapping[str, list[Any]], rank: int, stage: int, first: int) -> tuple[Shard, dict[str, str]]:
    """Returns the shard of a rank by the layout of its stage's weights, and the label of each weight."""
    redundancy_of = find("get_parameter_redundancy")
    stored = redundancy_of(layout, first)
    # A parallel optimizer shards each weight once more, and gathers it before it is used.
    used = redundancy_of({name: [*each[:5], "", *each[6:]] for name, each in layout.items()}, first)
    own = {name: next(each for each in groups if rank in each) for name, groups in stored.items()}
    label_of = {name: ",".join(map(str, sorted(group))) for name, group in own.items()}
    held = [next(set(group) for group in groups if rank in group) for groups in used.values()]
    part = ",".join(map(str, sorted(set.intersection(*held) if held else {rank})))
    return Shard(stage, part, -1, tuple(sorted(set(label_of.values())))), label_of


def shares_gradients() -> bool:
    """Returns whether optimizers may be called with gradients that were summed over ranks."""
    if operators_are_divided():
        return False  # MindSpore sums inside its own graph: no local gradient can be seen
    # Ranks that hold different parts of each weight, as after a reduce-scatter, begin with different weights.
    return _Known.told is None or _Known.groups is None or len(_Known.groups.members) > 1
