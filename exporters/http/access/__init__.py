"""Who may come in, and how a connection is secured: TLS, client certificates, passwords, and the files that say so.

May import: as `http`.
"""
