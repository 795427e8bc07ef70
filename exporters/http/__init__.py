"""The HTTP server: `/metrics`, `/healthz`, `/readyz` and `/events`, with TLS on both sides."""
