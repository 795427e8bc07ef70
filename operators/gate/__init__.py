"""The gate: feature values of a step in one table, and the guard, which refuses an update that breaks a limit."""
