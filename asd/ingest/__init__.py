"""The vendor's own alarms, read from its logs, as the same events: what a line means stands in `patterns`."""
