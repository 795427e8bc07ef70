"""Acts on decisions: isolations and releases through a scheduler, and their publication."""
