"""The table of slots, its two back ends, its gates, and the numbers of the sites in it.

May import: `kernel`.
"""
