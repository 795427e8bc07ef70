"""The first call that overflowed, and the record of overflows.

May import: `formats`.
"""
