"""The isolator `kubernetes`: cordons and taints the node of a device."""
