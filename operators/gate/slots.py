"""The table of slots of this process."""

from asd.operators.gate.table import Table

_table: Table | None = None


def table() -> Table:
    """Returns the table of this process; the first call makes it."""
    global _table
    if _table is None:
        _table = Table()
    return _table


def renew() -> Table:
    """Replaces the table by an empty one; users of the old one keep it."""
    global _table
    _table = Table()
    return _table
