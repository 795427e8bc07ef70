"""From counts and events to Prometheus series: the agent of a node, the collector, and who serves them."""
