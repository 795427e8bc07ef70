"""Pre-check of APIs: re-runs each call of a dump and compares it with a reference in float64."""
