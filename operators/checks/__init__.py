"""The check operators that a user derives from or gets."""
