"""A step that is made again: where it begins, its random numbers, and the search for the first wrong operator.

May import: `debugger`, `precheck` and what is below them.
"""
