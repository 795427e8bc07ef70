"""Everything that leaves the process: logs, events, evidence, metrics, pictures, reports, and isolation."""
