"""Pictures as SVG: values and limits, gradients, jobs, thresholds."""
