"""Commands of who watches: `events`, `exporter`, `ingest`, `report`.

May import: `shared`, and everything below the command line.
"""
