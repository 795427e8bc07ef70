"""The settings: the table of variables, how a text becomes a value."""
