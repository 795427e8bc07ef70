"""Who of several handlers acts, where each has a store of its own."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Leadership"]


class Leadership(Protocol):
    """One of several acts; the others take in the same events and stand by.

    Attributes:
        holder: Who acts, as last heard; empty for nobody.
        record: What the one that acted until now has left for us, see `asd.handler.act.succession`.
    """

    holder: str
    record: str

    @property
    def acts(self) -> bool:
        """Whether we are the one, for at least this moment."""
        ...

    def confirm(self, record: str) -> bool:
        """Leaves `record` now; returns whether it was taken, which proves that nobody else acts."""
        ...

    def leave(self, record: str) -> None:
        """Leaves `record` soon."""
        ...
