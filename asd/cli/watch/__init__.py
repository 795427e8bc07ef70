"""Commands for watching: `events`, `exporter`, `ingest`, `report`."""
