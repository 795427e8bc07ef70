"""Commands of who tunes and measures: `tune`.

May import: `shared`, and everything below the command line.
"""
