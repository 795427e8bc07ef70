"""Records the values of a call: encodes, judges and keeps them."""
