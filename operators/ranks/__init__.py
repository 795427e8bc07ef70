"""What ranks tell one another: who they are, features, weights, and what they saw in a refused step."""
