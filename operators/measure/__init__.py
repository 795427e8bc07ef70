"""Measurements of tensors: taps, local gradients, the loss scale, the optimizer's state."""
