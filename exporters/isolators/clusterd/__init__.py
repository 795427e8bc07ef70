"""The isolator `clusterd`: reports a public fault to MindCluster, which separates the chip."""
