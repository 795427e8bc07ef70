"""The check operators that a user derives from or gets.

May import: `recompute` and what is below it.
"""
