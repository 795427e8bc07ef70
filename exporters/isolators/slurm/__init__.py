"""The isolator `slurm`: drains the node of a device.

May import: `marks`, `options`.
"""
