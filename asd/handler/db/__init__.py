"""What the handler knows, in one SQLite file: tables, events as rows, isolations."""
