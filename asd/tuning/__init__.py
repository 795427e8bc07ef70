"""Thresholds for a stated budget of false alarms, from recorded feature values.

`propose` measures what the published tests of a rule have seen, says which thresholds keep them within the budget, and
judges the recorded values again with today's and with the proposed ones.

May import: `detect`, `rules`, `rundir`, `tiers`.
"""

from __future__ import annotations

from asd.tuning.budget import AlarmBudget
from asd.tuning.proposal import Proposal, ProposedThreshold, held_out, propose
from asd.tuning.scores import Scores, tests_of

__all__ = ["AlarmBudget", "Proposal", "ProposedThreshold", "Scores", "held_out", "propose", "tests_of"]
