"""Pictures as SVG: values and limits, gradients, jobs, thresholds.

May import: nothing of `asd.exporters`.
"""
