"""Judges a step: rules and detectors, verdicts, events and counts."""
