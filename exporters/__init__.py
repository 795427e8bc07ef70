"""Everything that leaves the process: log lines, the event log, pictures."""
