"""The metrics: from counts and events to Prometheus series."""
