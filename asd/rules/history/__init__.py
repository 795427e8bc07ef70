"""Detector tiers: parts that judge the sizes of tensors, each usable alone. Plain Python floats in, verdicts out.

`History` judges one checkpoint by itself, `Ranks` one checkpoint over all ranks, `StateBound` the weights
and the optimizer's state. Every tier is deterministic, and goes on from `state()` through `restore()`
exactly as if it had never stopped.

May import: `readings`, the rules, `asd.errors`, `asd.verdict`.
"""

from __future__ import annotations

from asd.rules.history.history import History
from asd.rules.history.margins import Margin
from asd.rules.history.ranks import Ranks
from asd.rules.history.state_bound import StateBound

__all__ = ["History", "Margin", "Ranks", "StateBound"]
