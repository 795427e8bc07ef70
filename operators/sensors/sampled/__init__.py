"""Duplicate execution of sampled layers in PyNative: products by checksum, calls by a second call."""
