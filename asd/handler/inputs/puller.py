"""Pulls from all agents at once, in one thread; each is asked again only after its answer was taken in."""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from asd.handler.inputs.agent_client import Access, AgentAnswer, AgentError, AgentLink
from asd.handler.inputs.targets import Target, TargetSource

_WAIT_SECONDS = 20.0
_MOST_AT_ONCE = 250  # events of one answer
_LARGE_AT_ONCE = 16  # large answers that are read, or wait to be taken in, at the same time: bounds the memory
_CONNECTING = 64  # agents that are connected to at the same time
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.25, 8.0  # seconds between two tries
_SHORTEST_ASIDE, _LONGEST_ASIDE = 1.0, 300.0  # the same for one that misbehaves
_REST_SECONDS = 0.5  # after an answer, so that what an agent has by then comes at once
_LOOK_SECONDS = 1.0
_ENDING_SECONDS = 5.0


class AgentState(NamedTuple):
    """State of an agent."""

    node: str  # node whose devices it reports
    reached: float = 0.0  # when it last answered, in seconds since the epoch; 0 for never
    since: float = 0.0  # time since when it does not answer, in seconds since the epoch; 0 while it does
    reason: str = ""  # reason of that, without a full stop
    behind: float = 0.0  # how many seconds its clock is behind ours
    fleet: str = ""  # its devices in training, as it sent them


class Batch(NamedTuple):
    """Answer of one agent to one request."""

    target: Target  # the agent
    answer: AgentAnswer  # its answer
    behind: float  # how many seconds its clock is behind ours
    taken: asyncio.Event  # is set in the puller's thread once the batch was taken in


class Puller:
    """Pulls from when it is made until `close`.

    Args:
        access: How to speak to agents; asked before every request.
        cursors: How far the agent of a node was read; called in another thread.
        wake: Is called when there is something to take in, in another thread.
    """

    def __init__(
        self,
        sources: Sequence[TargetSource],
        access: Callable[[], Access],
        cursors: Callable[[str], Sequence[str]],
        wake: Callable[[], None],
    ) -> None:
        self.batches: deque[Batch] = deque()  # answers that are not taken in yet, the oldest first
        self.states: dict[str, AgentState] = {}  # state of each agent, by its address
        self.failures, self.looked = 0, False
        self._sources, self._access, self._cursors = sources, access, cursors
        self._wake = wake
        self._behind: set[str] = set()
        self._tasks: dict[Target, asyncio.Task[None]] = {}
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda *_: None)  # an agent that fails is reported as one problem
        self._end = asyncio.Event()
        self._large = asyncio.Semaphore(_LARGE_AT_ONCE)
        self._parsers = ThreadPoolExecutor(1, "asd-puller-parser")
        self._connecting = asyncio.Semaphore(_CONNECTING)
        self._thread = threading.Thread(target=self._run, name="asd-puller", daemon=True)
        self._thread.start()

    @property
    def caught_up(self) -> bool:
        """True where every agent was read to its end, or could not be reached, since this was made."""
        return self.looked and not self._behind and not self.batches

    def done(self, batches: Sequence[Batch]) -> None:
        """Lets the agents of batches be asked again, as these were taken in."""

        def tell() -> None:
            for batch in batches:
                batch.taken.set()

        with contextlib.suppress(RuntimeError):  # closed meanwhile
            self._loop.call_soon_threadsafe(tell)

    def close(self) -> None:
        """Ends the thread; what was not taken in is fetched again some time."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(_ENDING_SECONDS)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._attend())
        finally:
            self._loop.close()
            self._parsers.shutdown(wait=False)

    async def _attend(self) -> None:
        while not self._end.is_set():
            found = [await self._loop.run_in_executor(None, each.look) for each in self._sources]
            self._follow({target.place: target for targets in found for target in targets})
            self.looked = True
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._end.wait(), _LOOK_SECONDS)
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _follow(self, wanted: dict[str, Target]) -> None:
        """Begins with agents that are new, and ends with those that are gone."""
        targets = set(wanted.values())
        for target in set(self._tasks) - targets:
            self._tasks.pop(target).cancel()
            if target.place not in wanted:
                self.states.pop(target.place, None)
                self._behind.discard(target.place)
        for target in targets - set(self._tasks):
            self.states[target.place] = AgentState(target.node)
            self._behind.add(target.place)
            self._tasks[target] = self._loop.create_task(self._pull_from(target))

    async def _pull_from(self, target: Target) -> None:
        pause, aside, has_more = _SHORTEST_PAUSE, 0.0, True
        link = AgentLink(target, self._connecting, self._parsers)
        try:
            while True:
                try:
                    has_more = await self._ask(target, link, has_more=has_more)
                except Exception as error:  # whatever goes wrong with one agent, it is asked again
                    known, has_more = isinstance(error, AgentError), True
                    self._failed(target, str(error) if known else f"{type(error).__name__}: {error}")
                    if isinstance(error, AgentError) and not error.misbehaves:
                        rest, pause = pause, min(2 * pause, _LONGEST_PAUSE)
                    else:
                        rest = aside = min(2 * aside, _LONGEST_ASIDE) or _SHORTEST_ASIDE
                else:
                    pause, aside = _SHORTEST_PAUSE, aside / 2  # failures now and then also prolong the time aside
                    rest = 0.0 if has_more else _REST_SECONDS
                # Out here: within `except` what was sent would be kept all the while, by the traceback.
                await asyncio.sleep(rest)
        finally:
            link.close()

    async def _ask(self, target: Target, link: AgentLink, *, has_more: bool) -> bool:
        """Asks once and hands over the answer; returns whether there may be more."""
        async with contextlib.AsyncExitStack() as held:
            answer = await link.fetch(
                self._access(),
                self._cursors(target.node),
                limit=_MOST_AT_ONCE,
                wait=0.0 if has_more else _WAIT_SECONDS,
                room=lambda: held.enter_async_context(self._large),
            )
            behind = 0.0 if answer.clock is None else time.time() - answer.clock
            if answer.events or answer.bad or answer.missed:
                batch = Batch(target, answer, behind, asyncio.Event())
                self.batches.append(batch)
                self._wake()
                await batch.taken.wait()
        if answer.bad:
            raise AgentError(f"{answer.bad} of its lines are not events; they are skipped", misbehaves=True)
        self.states[target.place] = AgentState(target.node, time.time(), behind=behind, fleet=answer.fleet)
        if not answer.is_full:
            self._behind.discard(target.place)
            self._wake()
        return answer.is_full

    def _failed(self, target: Target, reason: str) -> None:
        self.failures += 1
        known = self.states[target.place]
        self.states[target.place] = known._replace(since=known.since or time.time(), reason=reason)
        self._behind.discard(target.place)
        self._wake()
