"""The HTTP endpoint: `/metrics`, `/healthz`, `/readyz` and `/events`, with TLS and passwords."""
