"""The metrics to others than Prometheus itself: files that other exporters serve, and a Pushgateway.

May import: nothing of `asd.exporters`.
"""
