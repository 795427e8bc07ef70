"""What follows from a decision: isolations through an engine, releases, and their publication.

May import: `decide`, `db`, and of `asd.handler` `policy` and the words.
"""
