"""How many values may exceed a threshold, and where it then lies."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, isfinite, lgamma, log, log2
from typing import Final, NamedTuple

from asd.errors import ConfigError
from asd.rules.margins import ENOUGH, KEPT, exceeded_by

__all__ = ["HIGHEST", "HIGHEST_SECOND", "LOWEST", "MOST_EXCEEDING", "AlarmBudget", "allowed", "needed", "threshold"]

LOWEST, HIGHEST, HIGHEST_SECOND = 3, 2**63 - 1, 2**61
"""What the settings take; a second threshold this large leaves room for a first one above it, as floats too."""
MOST_EXCEEDING: Final = 1 << 15
_DOUBT: Final = 0.05
_LARGEST_BUDGET: Final = 0.01
_WIDEN: Final = 128 / 101.15
"""95 % upper bound of an exponential's mean, over the mean excess of the 64 largest values: 2*64 / chi2(5 %, 126)."""


class AlarmBudget(NamedTuple):
    """False alarms per check that are accepted.

    Attributes:
        first: First-level anomalies per check.
        second: Anomalies of either level per check.
    """

    first: float = 1e-6
    second: float = 1e-4

    def checked(self) -> AlarmBudget:
        """This budget, or ConfigError."""
        for name, share in (("--budget", self.first), ("--warnings", self.second)):
            if not 1e-12 <= share <= _LARGEST_BUDGET:
                valid = f"a share of all checks from 1e-12 to {_LARGEST_BUDGET:g}; 1e-6 is one in a million"
                raise ConfigError(name, share, valid)
        if self.second < self.first:
            raise ConfigError("--warnings", self.second, f"at least --budget, which is {self.first:g}")
        return self


def needed(share: float) -> int:
    """Values without an exceedance from which a rate of `share` follows with 95 % confidence: the rule of three."""
    return ceil(-log(_DOUBT) / share)


def allowed(count: int, share: float) -> int:
    """How many of `count` values may exceed, so that the rate is at most `share` with 95 % confidence; -1 if no number.

    The largest m with P(X <= m) <= 5 % for a Poisson number X of mean count*share (Garwood's upper bound), brought down
    to 0 or a power of two, so that a larger budget tries all that a smaller one does.
    """
    mean, total, m = count * share, 0.0, 0
    while mean > 0 and m <= MOST_EXCEEDING:
        total += exp(m * log(mean) - mean - lgamma(m + 1))
        if total > _DOUBT:
            break
        m += 1
    return m - 1 if m < 2 else 1 << ((m - 1).bit_length() - 1)


def threshold(largest: Sequence[float], count: int, share: float, exceeding: int) -> int | None:
    """The smallest setting that keeps to the budget; None where too few values were seen.

    Args:
        largest: The largest scores, in any order; more than `exceeding` of them unless fewer than 64 are above 0.
        count: How many scores were seen, those of 0 among them.
        share: The budget.
        exceeding: How many may be above it; with -1 none, and the tail beyond the largest is extrapolated: log2 of the
            scores falls off exponentially, with the upper 95 % bound of its mean excess.
    """
    ranked = sorted(largest, reverse=True)
    if count < ENOUGH or len(ranked) < KEPT:
        return None
    score = ranked[max(exceeding, 0)]
    if exceeding < 0:
        bits = exceeded_by([log2(each) for each in ranked[:KEPT]], count, share, widen=_WIDEN)
        score = max(score, 2.0 ** min(bits, 1023.0))
    return HIGHEST if not isfinite(score) or score >= HIGHEST else max(LOWEST, ceil(score))
