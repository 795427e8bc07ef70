"""Attributes a fault: compares ranks, weights by majority, and re-runs of a step."""
