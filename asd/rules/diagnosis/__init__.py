"""Whose fault it was: ranks held against one another, weights by majority, a step that was made again."""
