"""Results that are computed a second time: matrix products, norms, means over ranks.

May import: `measure` and what is below it.
"""
