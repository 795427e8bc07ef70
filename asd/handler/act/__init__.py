"""What follows from a decision: isolations through an engine, releases, and their publication."""
