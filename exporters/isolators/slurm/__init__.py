"""The isolator `slurm`: drains the node of a device."""
