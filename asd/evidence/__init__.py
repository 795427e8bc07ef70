"""What a run left for those who look for the wrong operator: dumps, and what comparing two of them tells."""
