"""Finds places in a network and puts checks there."""
