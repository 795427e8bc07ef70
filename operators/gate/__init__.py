"""The guard, which refuses an update that breaks a limit; and the record of a step, to which its parts add."""
