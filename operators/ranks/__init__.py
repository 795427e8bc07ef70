"""Exchange between ranks: their origins, features, weights, and what each saw in a refused step."""
