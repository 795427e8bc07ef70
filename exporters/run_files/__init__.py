"""Files of a rank in `ASD_RUN_DIR`, and its log: events, status, values, log lines."""
