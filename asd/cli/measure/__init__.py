"""Commands of who tunes and measures: `tune`, `drill`.

May import: `shared`, and everything below the command line.
"""
