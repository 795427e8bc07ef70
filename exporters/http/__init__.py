"""The HTTP server: `/metrics`, `/healthz`, `/readyz` and `/events`, with TLS and passwords.

May import: nothing of `asd.exporters`.
"""
