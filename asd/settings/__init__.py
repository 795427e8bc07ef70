"""Settings: the table of variables, and the parsing of their texts."""
