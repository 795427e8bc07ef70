"""Finds tensors to check in a network and puts checks there."""
