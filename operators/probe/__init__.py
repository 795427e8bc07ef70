"""Known-answer tests: run between the steps of a training, and by the device's stress test."""
