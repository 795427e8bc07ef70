"""The last word of a process that ends.

May import: nothing.
"""
