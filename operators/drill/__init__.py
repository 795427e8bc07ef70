"""Faults put into a network, and real trainings to put them into."""
