"""Pre-check of APIs, as far as it needs no MindSpore: calls of a dump, their inputs, rules and tables."""
