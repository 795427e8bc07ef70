"""How files that grow are followed: what is known of each, what is new in it, and what the kernel tells of folders.

May import: nothing of `asd.rundir`.
"""
