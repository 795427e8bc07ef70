"""Commands of who trains: `demo`, `run`, `selftest`, `env`, `tune`."""
