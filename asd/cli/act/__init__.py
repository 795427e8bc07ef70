"""Commands of who acts: `handler`, `devices`.

May import: `shared`, and everything below the command line.
"""
