"""How well the default finds faults in trainings that nothing was tuned on; `python -m benchmarks.held_out`."""
