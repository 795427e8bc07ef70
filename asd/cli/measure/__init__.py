"""Commands of who tunes and measures: `tune`, `bench`, `drill`.

May import: `shared`, and everything below the command line.
"""
