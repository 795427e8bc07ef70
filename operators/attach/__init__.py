"""Finds places in a network and puts checks there; which results are computed again, and when.

May import: `checks`, `gate` and what is below them.
"""
