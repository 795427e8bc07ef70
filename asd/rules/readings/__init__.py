"""Measurement of one checked tensor in one step: the reading, its features, its kind."""
