"""Thresholds for a stated budget of false alarms, from recorded feature values."""
