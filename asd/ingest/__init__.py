"""Reads the vendor's own alarms from its logs as events; `alarm_patterns` has the meaning of a line."""
