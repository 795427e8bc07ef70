"""Inputs of a fault handler: event logs that it follows, and agents that it pulls from."""
