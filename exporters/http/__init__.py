"""The HTTP server: `/metrics`, `/healthz`, `/readyz`, `/events` and `/devices`, with TLS on both sides.

May import: nothing of `asd.exporters`.
"""
