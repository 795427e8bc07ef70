"""Parses Slurm's description of a node, and our marks in the reason of a drain."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from asd.exporters.isolators.marks import marks_in
from asd.isolator import IsolationOwner

NODE_NAME = re.compile(r"(?!(?:ALL|DEFAULT)\Z)[A-Za-z0-9][A-Za-z0-9_.-]{0,254}", re.ASCII | re.IGNORECASE)
"""One node. Slurm also accepts lists and ranges such as `n[0-3]` or `ALL`, which would drain many at once."""

_NAME = re.compile(r"NodeName=(\S+) ", re.ASCII)
_STATE = re.compile(r" State=(\S+) ", re.ASCII)
# The reason is typed by people, so it may contain anything; user and time come after it.
_REASON = re.compile(r" Reason=(.*) \[[^\[\]@]*@[0-9T:-]+\]", re.ASCII | re.DOTALL)
_DRAINED = frozenset({"DRAIN", "DRAINED", "DRAINING"})
_OUT = _DRAINED | {"DOWN", "FAIL", "FAILING", "ERROR"}
_NOT_RESPONDING = "Not responding"  # set by the controller itself, and taken back by itself


class NodeState(NamedTuple):
    """State of a node in Slurm.

    Attributes:
        name: Name of the node.
        flags: State and its flags, for example `IDLE` and `DRAIN`.
        reason: Reason of a drain or failure; empty when none is set.
        marks: Devices for which we have drained it, each with its event; empty when the reason is not ours.
    """

    name: str
    flags: frozenset[str]
    reason: str
    marks: Mapping[str, str]

    @property
    def drained(self) -> bool:
        """Returns whether the node gets no more work until it is resumed."""
        return bool(self.flags & _DRAINED)

    def held(self, device: str) -> IsolationOwner:
        """Returns the owner of the isolation of this device; free if we drained the node for other devices only."""
        if self.drained and self.marks:
            return IsolationOwner.OURS if device in self.marks else IsolationOwner.FREE
        by_itself = (
            self.reason == _NOT_RESPONDING or self.marks
        )  # a drain of ours leaves its reason on a node that is down
        return IsolationOwner.OTHERS if self.drained or (self.flags & _OUT and not by_itself) else IsolationOwner.FREE


def parse_node(text: str) -> NodeState | None:
    """Parses one line of `scontrol --oneliner show node`; None when it is not such a line."""
    name, state = _NAME.match(text), _STATE.search(text)
    if name is None or state is None:
        return None
    flags = frozenset(re.sub(r"[^A-Z_]", "", flag) for flag in state.group(1).upper().split("+"))
    reason = _REASON.search(text, state.end() - 1)
    written = reason.group(1) if reason else ""
    return NodeState(name.group(1), flags, written, marks_in(written))
