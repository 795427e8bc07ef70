"""Results of layers computed again now and then in PyNative: products by checksum, calls by making them twice."""
