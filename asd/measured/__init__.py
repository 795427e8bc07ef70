"""What was seen of one checked tensor in one step: the reading, its features, its kind, and which process saw it.

May import: `asd.errors`.
"""
