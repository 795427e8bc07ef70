"""Nouns of the handler: policy, decision, who an event speaks for."""
