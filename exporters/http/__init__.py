"""The HTTP server: `/metrics`, `/healthz`, `/readyz` and `/events`, with TLS on both sides.

May import: nothing of `asd.exporters`.
"""
