"""Thresholds for a given budget of false alarms, from recorded feature values."""
