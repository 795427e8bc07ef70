"""The isolator `hostfile`: host lists and rank tables without the device.

May import: `marks`, `options`.
"""
