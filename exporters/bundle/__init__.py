"""The evidence of a first-level anomaly: one folder per step."""
