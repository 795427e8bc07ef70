"""Common parts of several commands: options, tables, progress."""
