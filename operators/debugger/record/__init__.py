"""What becomes of the values of a call: encoded, judged, kept.

May import: `asd.dumps`.
"""
