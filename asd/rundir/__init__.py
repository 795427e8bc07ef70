"""Files of a run: names, states, manifests, the last good checkpoint, recorded values, and their followers."""
