"""What a fault handler hears of: event logs that it follows, and agents that it pulls from."""
