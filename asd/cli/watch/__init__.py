"""Commands of who watches: `events`, `exporter`, `ingest`, `report`."""
