"""From a tensor to its numbers: taps, gradients before a mean, the loss scale; in `state` the optimizer's state.

May import: `ranks`, `table` and what is below them.
"""
