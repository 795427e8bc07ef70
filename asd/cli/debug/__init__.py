"""Commands of who looks for the cause: `compare`, `run_ut`.

May import: `shared`, and everything below the command line.
"""
