"""From a tensor to its numbers: taps, gradients before a mean, optimizer state, seals, the loss scale.

May import: `ranks`, `table` and what is below them.
"""
