"""The check operators that a user derives from or gets.

May import: `measure` and what is below it.
"""
