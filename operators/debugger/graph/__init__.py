"""The calls inside a compiled graph: found in the source, tapped, and given the numbers of PyNative.

May import: `hooks`, `record`.
"""
