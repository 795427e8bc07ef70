"""Requests of a fault handler to its Kubernetes API server: addresses of agents, and the handler that acts."""
