"""The report: one HTML file that says what happened in a run."""
