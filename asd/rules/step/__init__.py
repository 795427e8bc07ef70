"""What a step came to: who judges what, verdicts, events and counts.

May import: `diagnosis`, `readings`, `asd.config`, `asd.event`, `asd.origin`, `asd.settings`.
"""
