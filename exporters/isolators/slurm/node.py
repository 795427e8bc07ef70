"""What Slurm says about a node, and how our marks stand in the reason of a drain."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from asd.exporters.isolators.marks import marks_in
from asd.isolator import IsolationOwner

NODE_NAME = re.compile(r"(?!(?:ALL|DEFAULT)\Z)[A-Za-z0-9][A-Za-z0-9_.-]{0,254}", re.ASCII | re.IGNORECASE)
"""One node. Slurm also takes lists and ranges such as `n[0-3]` or `ALL`, which would take out many at once."""

_NAME = re.compile(r"NodeName=(\S+) ", re.ASCII)
_STATE = re.compile(r" State=(\S+) ", re.ASCII)
# The reason is what people typed, so it may hold anything; who set it and when comes after it.
_REASON = re.compile(r" Reason=(.*) \[[^\[\]@]*@[0-9T:-]+\]", re.ASCII | re.DOTALL)
_DRAINED = frozenset({"DRAIN", "DRAINED", "DRAINING"})
_OUT = _DRAINED | {"DOWN", "FAIL", "FAILING", "ERROR"}
_NOT_RESPONDING = "Not responding"  # set by the controller itself, and taken back by itself


class NodeState(NamedTuple):
    """A node as Slurm shows it.

    Attributes:
        name: Its name.
        flags: Its state and what goes with it, for example `IDLE` and `DRAIN`.
        reason: Why it is drained or down; empty when no reason is set.
        marks: The devices that we have drained it for, each with its event; empty when the reason is not ours.
    """

    name: str
    flags: frozenset[str]
    reason: str
    marks: Mapping[str, str]

    @property
    def drained(self) -> bool:
        """Whether the node gets no more work until somebody says so."""
        return bool(self.flags & _DRAINED)

    def held(self, device: str) -> IsolationOwner:
        """Who holds the device with this label out; one drained for another device of ours is free."""
        if self.drained and self.marks:
            return IsolationOwner.OURS if device in self.marks else IsolationOwner.FREE
        by_itself = (
            self.reason == _NOT_RESPONDING or self.marks
        )  # a drain of ours leaves its reason on a node that is down
        return IsolationOwner.OTHERS if self.drained or (self.flags & _OUT and not by_itself) else IsolationOwner.FREE


def parse_node(text: str) -> NodeState | None:
    """Reads one line of `scontrol --oneliner show node`; None when it is no such line."""
    name, state = _NAME.match(text), _STATE.search(text)
    if name is None or state is None:
        return None
    flags = frozenset(re.sub(r"[^A-Z_]", "", flag) for flag in state.group(1).upper().split("+"))
    reason = _REASON.search(text, state.end() - 1)
    written = reason.group(1) if reason else ""
    return NodeState(name.group(1), flags, written, marks_in(written))
