"""The files of a run: names, states, manifests, the last good checkpoint, recorded values, and what follows them."""
