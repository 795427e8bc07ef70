"""Re-runs a step, to confirm a suspicion or to attribute an anomaly."""
