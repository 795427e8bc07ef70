"""Faults put into a network, and real trainings to put them into.

May import: `start` and what is below it.
"""
