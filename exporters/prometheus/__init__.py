"""Prometheus series from counts and events: the agent of a node, the collector, and the servers."""
