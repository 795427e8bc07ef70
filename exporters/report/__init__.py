"""Report on a run, as one HTML file."""
