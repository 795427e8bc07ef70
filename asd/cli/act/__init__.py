"""Commands of who acts: `handler`, `devices`, `replay-policy`, `stress`, `recheck`.

May import: `shared`, and everything below the command line.
"""
