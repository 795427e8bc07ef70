"""Whether a device is to be isolated: from an event over strikes to a decision, and the breaker that stops it."""
