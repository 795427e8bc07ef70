"""Work whose answers are known: done between the steps of a training, and by a test of the device.

May import: `gate` and what is below it.
"""
