"""The processes of one attempt: MindSpore's launcher, the tree below it, its keeper, and the worker of each rank.

May import: `asd.errors`.
"""
