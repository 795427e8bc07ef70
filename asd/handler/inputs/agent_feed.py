"""Feeds a fault handler from the agents of its nodes, each event exactly once, however often either is killed."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from asd.event import Event
from asd.handler.db.fleet import Used
from asd.handler.db.store import Store
from asd.handler.handler import FaultHandler
from asd.handler.inputs.agent_client import Access
from asd.handler.inputs.puller import AgentState, Batch, Puller
from asd.handler.inputs.targets import TargetSource
from asd.handler.model.decision import Decision

_CURSORS = "cursors of "  # before the name of a node: its cursors are kept so, as a JSON list of texts
_AT_ONCE = 500  # events in one transaction: half a second of work
_MOST_JOURNALS = 8  # of one node, whose cursors are kept
_WRONG_SECONDS = 60.0
_FLEET_SECONDS = 60.0  # between two looks at what is in training
_AGREED_SECONDS = 5.0  # clocks that are no further apart agree


class AgentFeed:
    """Takes in what the agents tell.

    Args:
        wake: Is called, in another thread, when there is something to take in.
    """

    def __init__(
        self,
        handler: FaultHandler,
        sources: Sequence[TargetSource],
        access: Callable[[], Access],
        wake: Callable[[], None],
    ) -> None:
        self.events = 0
        self.refused = 0  # events so far that their agent may not tell
        self.missed = 0  # events that agents had dropped before they were fetched
        self._handler, self._sources = handler, sources
        self._complaints: dict[str, str] = {}
        self._cursors = read_cursors(handler.store)
        self._silent: dict[str, AgentState] = {}
        self._looked = time.monotonic()
        self.puller = Puller(sources, access, lambda node: self._cursors.get(node, ()), wake)

    @property
    def nothing_found(self) -> str:
        """Sentence for when no agent is known or none can be reached; empty when one can."""
        states = self.puller.states.copy().values()
        if not states:
            return "no agent is known" if self.puller.looked else "the agents were not looked up yet"
        return "" if any(state.reached and not state.since for state in states) else "no agent can be reached"

    def numbers(self) -> dict[str, float]:
        """Returns the counts of the agents, as in `HandlerCounts`."""
        no_agents = self.puller.looked and not self.puller.states
        clocks = [abs(each.behind) for each in self.puller.states.copy().values()]
        return {
            "agents_unknown": no_agents or any(each.problem for each in self._sources),
            "agent_failures": self.puller.failures,
            "refused_events": self.refused,
            "missed_events": self.missed,
            "clock_difference_seconds": max(clocks, default=0.0),
        }

    @property
    def complaints(self) -> list[str]:
        """Present problems with the agents, one sentence each."""
        problems = [f"{each.problem}." for each in self._sources if each.problem]
        if self.puller.looked and not self.puller.states:
            problems.append("no agent is known, so nothing is pulled.")
        return [*problems, *self._complaints.values()]

    def step(self) -> list[Decision] | None:
        """Handles new events; returns None without any. After a StateError the next call handles them."""
        if self.puller.looked:
            self._handler.know_nodes("agents", {state.node for state in self.puller.states.copy().values()})
        self._take_fleet()
        batches: list[Batch] = []
        size = 0
        # Short batches first: an agent with many events waits, not one with a single verdict.
        for batch in sorted(self.puller.batches.copy(), key=lambda each: len(each.answer.events)):
            size += len(batch.answer.events)
            if batches and size > _AT_ONCE:
                break
            batches.append(batch)
        if not batches:
            return None
        sent = ((batch, event) for batch in batches for event in batch.answer.events)
        events = [_by_our_clock(batch, event) for batch, event in sent if _may_tell(batch, event)]
        moved = self._moved(batches)
        decisions = self._handler.handle_many(events, {_CURSORS + node: json.dumps(moved[node]) for node in moved})
        self._cursors.update(moved)
        self.events += len(events)
        for batch in batches:
            self.puller.batches.remove(batch)
            self._look_at(batch)
        self.puller.done(batches)
        return decisions

    def _take_fleet(self) -> None:
        """Adds the time since the last look to the devices that the agents report to be in training."""
        passed = time.monotonic() - self._looked
        if passed < _FLEET_SECONDS:
            return
        used: dict[str, list[Used]] = {}
        for place, state in self.puller.states.copy().items():
            if not state.fleet or state.since:
                continue
            try:
                used[state.node] = msgspec.json.decode(state.fleet, type=list[Used])
            except (ValueError, RecursionError) as error:
                self._complaints[f"fleet {place}"] = f"{place} sends no list of devices: {error}."
        self._handler.know_fleet(used, min(passed, 2 * _FLEET_SECONDS) / 86400)
        self._looked = time.monotonic()

    def news(self) -> list[str]:
        """Returns which agents have become silent, and which answer again, one sentence each."""
        states, told = self.puller.states.copy(), []
        for place, before in list(self._silent.items()):
            state = states.get(place)
            if state is None or not state.since:
                del self._silent[place]
            if state is not None and not state.since:
                seconds = max(state.reached - before.since, 0.0)
                told.append(f"the agent of {before.node} at {place} answers again, after {seconds:.0f} s.")
        for place, state in states.items():
            if state.since and place not in self._silent:
                self._silent[place] = state
                silent = f"the agent of {state.node} at {place} does not answer: {state.reason}"
                told.append(f"{silent}; it is asked again, and its stored events are fetched then.")
        return told

    def _moved(self, batches: Sequence[Batch]) -> dict[str, list[str]]:
        """Returns the cursors of the nodes after these batches: the last ones of each journal, the last used last."""
        moved: dict[str, list[str]] = {}
        for batch in batches:
            node, cursor = batch.target.node, batch.answer.cursor
            before = moved.get(node, self._cursors.get(node, []))
            journal = cursor.partition(".")[0]
            moved[node] = [*(each for each in before if each.partition(".")[0] != journal), cursor][-_MOST_JOURNALS:]
        return moved

    def _look_at(self, batch: Batch) -> None:
        """Counts and reports events that were not taken in."""
        answer, place, own = batch.answer, batch.target.place, batch.target.node
        refused = [event for event in answer.events if not _may_tell(batch, event)]
        self.refused += len(refused)
        self.missed += answer.missed
        found: dict[str, str] = {}
        if refused:
            such = f"such as the {refused[0].kind} of a device of {refused[0].host!r:.100}"
            may = f"the agent at {place} may report only devices of {own}, and no releases"
            found[f"refused {place}"] = f"{may}; its other events are refused, {such}."
        if abs(batch.behind) > _WRONG_SECONDS:
            how = f"{abs(batch.behind):.0f} s {'behind' if batch.behind > 0 else 'ahead'}"
            found[f"clock {place}"] = f"the clock of {own} is {how}; its events are dated by this clock."
        if answer.missed:
            dropped = f"the agent at {place} had dropped {answer.missed} events"
            found[f"missed {place}"] = f"{dropped} before they were fetched, because there were too many."
        self._complaints = found | self._complaints  # the first of each kind


def _by_our_clock(batch: Batch, event: Event) -> Event:
    """Returns the event with the time that our clock showed then."""
    return replace(event, time=event.time + batch.behind) if abs(batch.behind) > _AGREED_SECONDS else event


def _may_tell(batch: Batch, event: Event) -> bool:
    """Returns whether an agent may report `event`: on its own node only, and no release that clears strikes."""
    clears = event.kind == "recovery" and event.recovered_by not in ("handler", "vendor")
    return event.host == batch.target.node and not clears


def read_cursors(store: Store) -> dict[str, list[str]]:
    """Returns how far the agent of each node was read: the cursors of its journals."""
    rows = store.db.execute("SELECT name, value FROM meta WHERE substr(name, 1, ?) = ?", (len(_CURSORS), _CURSORS))
    return {name.removeprefix(_CURSORS): json.loads(value) for name, value in rows}
