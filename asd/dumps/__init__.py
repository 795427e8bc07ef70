"""Tools for the time after an alarm: dumps, their formats, and conclusions from them. No MindSpore."""
