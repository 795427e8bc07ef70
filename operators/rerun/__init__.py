"""A step that is made again: where it begins, and its random numbers.

May import: `gate` and what is below it.
"""
