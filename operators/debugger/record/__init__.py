"""What becomes of the values of a call: encoded, delivered, compared, kept.

May import: `asd.dumps`.
"""
