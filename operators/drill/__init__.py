"""Faults to inject into a network, and real trainings to inject them into."""
