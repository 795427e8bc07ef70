"""The HTTP server: `/metrics`, `/healthz`, `/readyz`, `/events` and `/devices`, with TLS and passwords on both sides.

May import: nothing of `asd.exporters`.
"""
