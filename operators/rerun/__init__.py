"""A step that is made again, to confirm what is suspicious or to attribute an anomaly."""
