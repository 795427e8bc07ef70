"""Detector tiers: parts that judge the sizes of tensors, each usable alone. Plain Python floats in, verdicts out.

`History` judges one checkpoint by itself, `Ranks` one checkpoint over all ranks, `StateBound` and `Seal`
the weights and the optimizer's state. Every tier is deterministic, and goes on from `state()` through `restore()`
exactly as if it had never stopped.

>>> tier = History("B")
>>> tier.update(Features(max_abs=1.0, l2=2.0, mean_abs=0.5)).level.name
'NORMAL'

May import: `measured`, `rules`, `asd.errors`, `asd.verdict`.
"""

from __future__ import annotations

from asd.measured.features import FEATURES, Features
from asd.measured.kinds import KINDS, Kind, kind_of
from asd.tiers.history import History
from asd.tiers.ranks import Ranks
from asd.tiers.seal import Seal, Sealed
from asd.tiers.state import StateBound
from asd.tiers.tail import Tails

__all__ = [
    "FEATURES",
    "KINDS",
    "Features",
    "History",
    "Kind",
    "Ranks",
    "Seal",
    "Sealed",
    "StateBound",
    "Tails",
    "kind_of",
]
