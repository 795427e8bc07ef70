"""Commands of who acts: `handler`, `devices`, `stress`, `recheck`.

May import: `shared`, and everything below the command line.
"""
