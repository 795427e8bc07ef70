"""Nouns of the handler: policy, decision, devices that an event may report."""
