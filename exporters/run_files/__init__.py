"""What a rank leaves in `ASD_RUN_DIR` and in its log: events, status, values, log lines."""
