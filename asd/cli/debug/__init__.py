"""Commands of who looks for the cause: `compare`, `merge_result`, `overflow_check`, `run_ut`, `grad_compare`.

May import: `shared`, and everything below the command line.
"""
