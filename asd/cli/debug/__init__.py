"""Commands of who looks for the cause: `compare`, `overflow_check`, `run_ut`.

May import: `shared`, and everything below the command line.
"""
