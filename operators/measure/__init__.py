"""From a tensor to its numbers: taps, gradients before a mean, the loss scale, the optimizer's state."""
