"""Faults to inject into a network."""
