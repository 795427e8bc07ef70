"""The first call that overflowed.

May import: `formats`.
"""
