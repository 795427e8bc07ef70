"""The guard: an update that breaks a limit is not applied. And what the parts of a step share, the record they add to.

May import: `measure` and what is below it.
"""
