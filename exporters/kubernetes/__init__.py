"""What a fault handler on Kubernetes asks its API server: where the agents are, and which handler acts."""
