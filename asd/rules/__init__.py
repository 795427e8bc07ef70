"""Rules that judge the feature values of a checkpoint: plain Python floats in, a verdict out.

>>> rule = make_rule("threshold")
>>> rule.update(float("nan"))
Verdict(level=<Level.ERROR: 2>, reason='not finite', value=nan, limit=1000000.0)
"""

from asd.rules.adaptive import Adaptive
from asd.rules.base import Rule
from asd.rules.combined import Combined
from asd.rules.registry import RULES, make_rule
from asd.rules.silent_check_v3 import SilentCheckV3
from asd.rules.state_bound import StateBound
from asd.rules.threshold import Threshold

__all__ = ["RULES", "Adaptive", "Combined", "Rule", "SilentCheckV3", "StateBound", "Threshold", "make_rule"]
