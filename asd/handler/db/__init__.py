"""State of the handler in one SQLite file: tables, events as rows, isolations."""
