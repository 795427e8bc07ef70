"""The guard: an update that breaks a limit is not applied; and the record of a step, to which its parts add."""
