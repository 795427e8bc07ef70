"""Which call of one run belongs to which of the other.

May import: `formats`.
"""
