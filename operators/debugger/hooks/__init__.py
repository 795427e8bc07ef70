"""Hooks on modules and APIs, and the session that they write to."""
