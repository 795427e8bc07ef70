"""The settings: the table of variables, how a text becomes a value, and the vendor's combined scheme.

May import: `asd.errors`.
"""
