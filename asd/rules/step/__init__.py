"""What a step came to: who judges what, verdicts, events and counts."""
