"""What adds up on a rank: what it counted, what protects it, and what a strike is.

May import: `measured`.
"""
