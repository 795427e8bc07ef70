"""Commands for finding the cause: `compare`, `run_ut`."""
