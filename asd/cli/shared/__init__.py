"""What several commands share: options, tables, progress.

May import: everything below the command line.
"""
