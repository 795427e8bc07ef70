"""Check operators: the base class for users' own, and ready-made ones."""
