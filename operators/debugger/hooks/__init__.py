"""What is put on modules and APIs, and the session that they write to.

May import: `record`, and `precheck`, `checks` and what is below them.
"""
