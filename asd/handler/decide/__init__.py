"""Decides whether a device is isolated: from an event over strikes to a decision, and the circuit breaker."""
