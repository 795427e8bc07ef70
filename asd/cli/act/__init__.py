"""Commands of who acts: `handler`, `devices`."""
