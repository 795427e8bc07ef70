"""Commands of who looks for the cause: `compare`, `run_ut`."""
