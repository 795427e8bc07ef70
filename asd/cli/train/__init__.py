"""Commands for training: `demo`, `run`, `selftest`, `env`, `tune`."""
