"""What a fault handler hears of: event logs that it follows, and alerts that Alertmanager sends.

May import: `asd.handler` and all its folders.
"""
