"""An optimizer's weights and what it keeps about them: which tensors, their extremes, and hashes between two steps.

May import: as `measure`.
"""
