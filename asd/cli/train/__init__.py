"""Commands of who trains: `demo`, `run`, `env`.

May import: `shared`, and everything below the command line.
"""
