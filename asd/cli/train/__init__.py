"""Commands of who trains: `demo`, `run`, `selftest`, `env`, `tune`.

May import: `shared`, and everything below the command line.
"""
