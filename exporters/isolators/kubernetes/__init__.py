"""The isolator `kubernetes`: cordons and taints the node of a device.

May import: `marks`, `options`, `public_fault`.
"""
