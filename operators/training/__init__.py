"""A training under watch: what `StepMonitor` does around each step, one part a file.

checks, checksum_plan      puts the checks in their places, and says when products are due
judging, problems          from the slots to the verdicts, and back to the limits of the next step
state_checks, weight_watch judge what the step left: optimizer state on this rank, weights over all ranks
step_replay                makes a refused step again
rule_state                 the rules' memory, beside the checkpoints
ending                     whether and how the training ends
watched_training           all of them, in the order of a step
"""

from asd.operators.training.watched_training import WatchedTraining

__all__ = ["WatchedTraining"]
