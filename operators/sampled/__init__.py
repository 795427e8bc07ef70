"""Results of layers computed again now and then, in PyNative: products by their checksum, calls by making them twice.

May import: `attach` and what is below it.
"""
