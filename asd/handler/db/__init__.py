"""What the handler knows, in one SQLite file: tables, events as rows, isolations.

May import: of `asd.handler` only `identity`.
"""
