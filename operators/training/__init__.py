"""A training under watch: what `StepMonitor` does around each step, one part a file.

watched_training ── the parts, and their turns
checks, checksum_plan ── put the checks in their places, and say when products are due
sharing ── whose each check is, where a process has several monitors
judging, problems ── from the slots to the verdicts, and back to the limits of the next step
state_checks, weight_watch ── judge what a step left: optimizer state on this rank, weights over all ranks
step_replay ── makes a refused step again
rule_state ── the memory of the rules, beside the checkpoints
forgotten ── says so when nobody calls `step`
ending ── whether the training ends, and how
"""

from __future__ import annotations

from asd.operators.training.watched_training import WatchedTraining

__all__ = ["WatchedTraining"]
