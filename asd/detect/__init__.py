"""From the features of a checkpoint to a verdict: who judges what, the second look, the combined scheme.

May import: `diagnosis`, `measured`, `rules`, `settings`, `tiers`.
"""
