"""Detector tiers: parts that look at more than one site. Plain Python floats in, verdicts out.

`Ranks` judges one site over all ranks, `StateBound` the weights and the optimizer's state. Every tier is deterministic,
and goes on from `state()` through `restore()` exactly as if it had never stopped.

May import: `readings`, the rules, `asd.errors`, `asd.verdict`.
"""

from __future__ import annotations

from asd.rules.history.ranks import Ranks
from asd.rules.history.state_bound import StateBound

__all__ = ["Ranks", "StateBound"]
