"""How often the first wrong operator is named right: seeded faults in one step of a training."""
