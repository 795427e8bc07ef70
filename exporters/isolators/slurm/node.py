"""Parses Slurm's descriptions of nodes and jobs, and our marks in the reason of a drain."""

import re
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from asd.exporters.isolators.marks import marks_in
from asd.handler.inputs.targets import Target
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
    """State of a node in Slurm."""

    name: str  # name of the node
    flags: frozenset[str]  # state and its flags, for example `IDLE` and `DRAIN`
    reason: str  # reason of a drain or failure; empty when none is set
    marks: Mapping[str, str]  # devices for which we drained it, each with its event; empty when the reason is not ours

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


_JOB = re.compile(r"slurm-([0-9]{1,10})(?![0-9])", re.ASCII)
_LISTED = re.compile(r"([0-9]{1,10})\|(\S+)", re.ASCII)
_LOOK_SECONDS, _SECONDS = 10.0, 10.0  # between two looks, and for an answer
_MOST_BYTES = 16 << 20
_MOST_NODES = 100_000


class SlurmJobs:
    """Nodes of each job, from `squeue`; asked every 10 s.

    A run in a job of Slurm is called `slurm-JOBID`, and what follows.

    Args:
        squeue: The program.
        clock: Seconds from any point in time.
    """

    def __init__(self, squeue: str = "squeue", clock: Callable[[], float] = time.monotonic) -> None:
        # what keeps it from knowing the jobs now, in one sentence without a full stop; empty for nothing
        self.problem = ""
        self._command = [squeue, "--noheader", "--states=all", "--format=%A|%N"]
        self._clock, self._next = clock, clock()
        self._jobs: dict[str, frozenset[str]] = {}

    def look(self) -> list[Target]:
        """Updates the nodes of the jobs; they stay as they were when Slurm does not answer."""
        if self._clock() < self._next:
            return []
        try:
            done = subprocess.run(self._command, capture_output=True, timeout=_SECONDS, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            self.problem = f"the jobs are unchanged, because squeue failed: {str(error)[:200]}"
        else:
            listed = _LISTED.findall(done.stdout[:_MOST_BYTES].decode(errors="replace"))
            self._jobs, self.problem = {job: frozenset(expand(nodes)) for job, nodes in listed}, ""
        self._next = self._clock() + _LOOK_SECONDS
        return []

    def hosts(self, job: str) -> Collection[str]:
        """Returns the nodes of a job."""
        match = _JOB.match(job)
        return self._jobs.get(match[1], ()) if match is not None else ()


def expand(nodes: str) -> Iterator[str]:
    """Expands a list of nodes in Slurm's form.

    >>> list(expand("n[08-10,12],login"))
    ['n08', 'n09', 'n10', 'n12', 'login']
    """
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", nodes):
        head, bracket, rest = part.partition("[")
        if not bracket:
            yield head
            continue
        numbers, _, tail = rest.partition("]")
        for each in numbers.split(","):
            first, _, last = each.partition("-")
            if first.isdecimal() and (last or first).isdecimal():
                for number in range(int(first), min(int(last or first), int(first) + _MOST_NODES) + 1):
                    yield from expand(f"{head}{number:0{len(first)}}{tail}")
