"""What is looked at after an alarm: dumps, their formats, and what is told from them. No MindSpore."""
