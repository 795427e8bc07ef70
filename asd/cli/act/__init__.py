"""Commands for acting on faults: `handler`, `devices`."""
