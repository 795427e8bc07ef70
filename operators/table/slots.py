"""The table of slots of this process."""

from __future__ import annotations

from asd.operators.table.table import Table

__all__ = ["Table", "renew", "table"]

_table: Table | None = None


def table() -> Table:
    """The table of this process, made at the first call."""
    global _table
    if _table is None:
        _table = Table()
    return _table


def renew() -> Table:
    """Begins with an empty table; what was made before stays with the one it was made for."""
    global _table
    _table = Table()
    return _table
