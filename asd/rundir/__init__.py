"""The files of a run: their names, states, manifests, the last good checkpoint, recorded values, and what follows them.

May import: `measured`, and `asd.config`, `asd.event`.
"""
