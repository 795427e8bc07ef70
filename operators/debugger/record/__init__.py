"""What becomes of the values of a call: encoded, judged, kept."""
