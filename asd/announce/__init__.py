"""From a verdict to the sinks: events are made, and handed over; the last word of a process that ends.

May import: `counts`, `detect`, `diagnosis`, `measured`.
"""
