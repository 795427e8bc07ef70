"""Two dumps side by side: rows, which of them are wrong, where the runs part first, and the tables of results.

May import: `formats`, `pairing`.
"""
