"""Which faults do harm, and which detector finds them: real training, injected faults, every detector side by side."""
