"""The isolator `clusterd`: reports a public fault to MindCluster, which separates the chip.

May import: `kubernetes`, `marks`, `options`, `public_fault`.
"""
