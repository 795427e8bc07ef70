"""What a line of a log says, one file a source: all see a `LogLine` and return a `LogFinding`.

May import: `asd.event`, `asd.fault_code`, `asd.verdict`.
"""
