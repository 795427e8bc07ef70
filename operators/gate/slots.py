"""The table of slots of this process."""

import gc

from asd.operators.gate import table as fixed


class GrowingTable(fixed.Table):
    """Table that grows until its first guard is made, whose graph has the numbers of the slots behind the sites."""

    def __init__(self, capacity: int = 0) -> None:
        self.CAPACITY = capacity or self.CAPACITY  # the usual number if 0
        super().__init__()

    def make_room(self, count: int) -> None:
        """Grows if fewer than `count` slots are free and no guard lives; compiled graphs must not have begun."""
        needed = len(self._sites.living) + count
        if needed > self.CAPACITY and self.guards:
            gc.collect()  # of trainings that are over
        if needed <= self.CAPACITY or self.guards:
            return
        larger, self._sites.capacity = vars(GrowingTable(2 * needed)), 2 * needed
        for name in ("worst", "aside", "counts", "bounds"):  # cells hold these Parameters
            vars(self)[name].set_data(larger.pop(name), slice_shape=True)
        vars(self).update({name: made for name, made in larger.items() if name not in ("_sites", "gates", "guards")})


_table: GrowingTable | None = None


def table() -> GrowingTable:
    """Returns the table of this process; the first call makes it."""
    global _table
    if _table is None:
        _table = GrowingTable()
    return _table


def renew() -> GrowingTable:
    """Replaces the table by an empty one; users of the old one keep it."""
    global _table
    _table = GrowingTable()
    return _table
