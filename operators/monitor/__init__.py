"""Watches a training: the work of `StepMonitor` around each step, one part a file.

step_monitor ── the callback, and the calls of a loop of one's own
training_watch ── the parts, and their turns in a step
step_reader ── from the slots to the verdicts, and back to the limits of the next step
state_checks, weight_watch ── judge the result of a step: optimizer state on this rank, weights over all ranks
rule_state ── the memory of the rules, beside the checkpoints
forgotten ── reports missing calls of `step`
ending ── decides whether the training ends, and how
"""
