"""The evidence of a first-level anomaly: one folder per step.

May import: nothing of `asd.exporters`.
"""
