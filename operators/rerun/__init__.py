"""Re-runs a step, to confirm an anomaly or to attribute it; and known-answer tests of the device between steps."""
