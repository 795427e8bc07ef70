"""The table of slots, its gates, and the numbers of the sites in it."""
