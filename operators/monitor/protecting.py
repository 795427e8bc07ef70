"""Reports the protections of a training: before its first step by settings and checkpoints, then by that step."""

from collections.abc import Sequence

import mindspore as ms
from mindspore import nn
from mindspore.experimental import optim as experimental

from asd.config import Config
from asd.judge.monitor import Monitor
from asd.judge.protections import PLACES
from asd.operators.gate.guard import is_guarded
from asd.operators.gate.site import Site
from asd.operators.private.mixed_precision import type_of_holder
from asd.operators.ranks.exchange import Exchange
from asd.rules.reading import GRADIENT

_ADAPTIVE = "ASD_RULE=adaptive"
_STATE, _WEIGHTS = "ASD_OPTIONS=detectors:state", "ASD_OPTIONS:weight_hash"
_REFUSES = {
    "skip": "updates of first-level anomalies are refused, the training continues",
    "stop": "updates of first-level anomalies are refused, and end training",
}
_REGROUPED = (
    "with half precision in a compiled graph, MindSpore may round at different places near checked layers and guarded "
    "updates, and may add the gradients of a shared value in a different order: last bits may differ, as they do next "
    "to any additional operator"
)
_HALF = (ms.float16, ms.bfloat16)
_BY_REWRITING = ("O1", "auto")
"""Levels of `amp.auto_mixed_precision` that write casts into the code of cells, and set no flags."""


def before_first_step(
    monitor: Monitor,
    config: Config,
    optimizer: nn.Cell | None,
    sites: Sequence[Site],
    ranks: Exchange,
    net: nn.Cell | None,
) -> None:
    """Reports the protections that the settings ask for, the checked tensors, and what prevents protections."""
    found, detectors = monitor.protections, config.active_detectors
    found.count(site.kind for site in sites)
    found.has(
        rule=config.rule,
        refusal=_REFUSES[config.on_anomaly] if is_guarded(optimizer) and config.refuses else "",
        manifests="of checkpoint files" if config.manifest else "",
        recording="of all values" if config.record else "",
    )
    tell_groups(monitor, config, ranks)
    half_weights = net is not None and any(weight.dtype in _HALF for weight in net.get_parameters())
    cells = [] if net is None else [cell for _, cell in net.cells_and_names()]
    is_cast = any(type_of_holder(cell) in _HALF or getattr(cell, "_amp_level", "") in _BY_REWRITING for cell in cells)
    found.has(rounding=_REGROUPED if config.refuses and (half_weights or is_cast) else "")
    for setting, is_asked, what in (
        ("ASD_ON_ANOMALY", config.refuses, "no update can be refused"),
        (_ADAPTIVE, config.rule == "adaptive", "gradients of parameters are not known"),
        (_STATE, "state" in detectors, "its weights and its state are not known"),
    ):
        if is_asked and optimizer is None:
            found.lacks(setting, f"no optimizer was given, so {what}")
    _tell_rule(monitor)


def _tell_rule(monitor: Monitor) -> None:
    """Reports the rule, with the active detectors."""
    config, missing = monitor.config, monitor.protections.missing
    detectors = [each for each in config.active_detectors if f"ASD_OPTIONS=detectors:{each}" not in missing]
    monitor.protections.has(rule=config.rule + (f" with detectors {', '.join(detectors)}" if detectors else ""))


def tell_groups(monitor: Monitor, config: Config, ranks: Exchange) -> None:
    """Reports the replica groups, or why no weights are compared."""
    found, groups = monitor.protections, ranks.groups
    found.has(groups=groups.words)
    found.missing.pop(_WEIGHTS, None)
    if ranks.size > 1 and config.weight_hash and not groups.holders:
        found.lacks(_WEIGHTS, f"no two ranks have the same weights: {groups.source}")


def _unguarded(net: nn.Cell) -> list[str]:
    optimizers = [
        (name, cell) for name, cell in net.cells_and_names() if isinstance(cell, nn.Optimizer | experimental.Optimizer)
    ]
    guarded = {id(inner) for _, cell in optimizers if is_guarded(cell) for _, inner in cell.cells_and_names()}
    return [
        f"optimizer {type(cell).__name__} ({name}) is not guarded: its updates are never refused"
        for name, cell in optimizers
        if id(cell) not in guarded
    ]


def after_first_step(monitor: Monitor, net: nn.Cell | None, sites: Sequence[Site]) -> None:
    """Reports sites that were left out in compilation, and sites without a value in the first step."""
    found = monitor.protections
    found.count(site.kind for site in sites)  # sites that cannot be checked are gone
    _tell_rule(monitor)
    found.lacks("ASD_ON_ANOMALY", *(_unguarded(net) if monitor.config.refuses and net is not None else ()))
    # Where gradients accumulate, gradients of parameters may come only every few steps.
    seen = {reading.checkpoint for reading in monitor.readings}
    names, words = [site.name for site in sites if site.kind == GRADIENT], PLACES[GRADIENT]
    if names and seen.isdisjoint(names):
        found.lacks("NPU_ASD_ENABLE", f"none of {len(names)} {words} was seen in the first step")
    elif unseen := [name for name in names if name not in seen]:
        found.unseen[words] = unseen
