"""Follows the events of runs, and isolates faulty devices.

A device is isolated after three steps with first-level anomalies within eight hours, or one replay with the verdict
`persistent`; not after faults of software or data, or of many devices at once. At most two devices per node are
isolated in a day, more only where the whole node goes. The circuit breaker stops isolation if devices of more than two
nodes, and of more than 10 % of all nodes, were to be isolated in that time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from asd.cli.act.handler_endpoints import add_endpoint_arguments, metrics_served, say
from asd.cli.act.leading import Leading, add_lease_argument, check_leads, read_lease
from asd.cli.act.pulled_agents import Agents, add_agent_arguments, allow_many_files, read_agents
from asd.cli.shared.isolation import IsolationLog, open_isolator
from asd.cli.shared.options import add_policy_arguments, add_run_dir, read_policy
from asd.cli.shared.progress import write_line
from asd.cli.shared.stopping import stopped
from asd.config import Config
from asd.errors import StateError, printable
from asd.event import Event
from asd.handler import Decision, FaultHandler, Policy, Store
from asd.handler.act.clock import machine_uptime
from asd.handler.db.cases import Cases
from asd.handler.db.store import existing, state_file
from asd.handler.decide.breaker import reset_breaker
from asd.handler.handler_counts import HandlerCounts
from asd.handler.inputs.agent_feed import AgentFeed
from asd.handler.inputs.feed import LogFeed
from asd.handler.model.decision import NEWS
from asd.isolator import Device, Isolator

if TYPE_CHECKING:
    from asd.exporters.kubernetes.lease import KubeLease

_EXAMPLES = """\
Examples:
  asd handler                                        follow the run in ASD_RUN_DIR, only record decisions
  asd handler --run-dir job1 --run-dir job2 --isolator slurm
  asd handler --dry-run --once --from-beginning      show what the existing logs would isolate, and end
  asd handler --metrics 127.0.0.1:9465               serve its state and its actions as metrics
  asd handler --agents agents.json --agents-config tls.yml --isolator kubernetes
                                                     pull from the agents of the nodes, without a shared folder
  asd handler --agents kubernetes:asd/app.kubernetes.io/name=asd-agent:9464 --agents-config tls.yml \\
      --isolator kubernetes --lease asd/asd-handler  pull from pods; only the handler with the Lease acts
  asd handler --reset-breaker                        close the circuit breaker, to isolate again

agents.json has the form of Prometheus' file_sd: [{"targets": ["node7:9464"], "labels": {"node": "node7"}}], and is
read again when it changes. tls.yml has tls_config with ca_file, cert_file, key_file and server_name. An agent may
report only devices of its own node: of the label `node`, of the node of its pod, or else of the host of its target.

After a restart it continues. Events from more than a minute before its very first start, or before a reset of the
circuit breaker, are recorded and have no effect. Its actions are written to RUN_DIR/events-handler.jsonl.

exit codes: 0 done or ended by SIGTERM, 1 the job failed or another handler is running, 2 wrong usage."""

_GLANCE_SECONDS, _INTERVAL_SECONDS = 0.1, 0.2  # between two looks, at agents and at logs
_MOST_NEWS = 64  # lines of one node in that time: it may make up any number of devices
_NEWS_SECONDS = 60.0  # so long what is done about a device is no news when it is done again
_TICK_SECONDS = 60.0  # so long other work waits while events come faster than they are read
_FLOOD_SECONDS = 600.0  # so long strikes wait until all events were read: a backlog has an end, a flood has none
_UNABLE_SECONDS = 60.0  # after it a handler that cannot work gives its Lease to another one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd handler`."""
    parser.epilog = _EXAMPLES
    add_run_dir(
        parser,
        action="append",
        help="folder of a run; may be given several times (default: ASD_RUN_DIR, or none to read with --agents)",
    )
    add_agent_arguments(parser)
    add_lease_argument(parser)
    add_endpoint_arguments(parser)
    parser.add_argument(
        "--isolator", default="none", metavar="NAME", help="the isolator (default: %(default)s, record only)"
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="K=V",
        help="an option of the isolator; may be given several times",
    )
    add_policy_arguments(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="decide and report, but isolate nothing; without --state its database is handler-dry-run.sqlite",
    )
    parser.add_argument("--from-beginning", action="store_true", help="at the very first start, act on old events too")
    parser.add_argument("--once", action="store_true", help="process the existing events and end")
    parser.add_argument("--state", type=Path, metavar="FILE", help="database (default: RUN_DIR/handler.sqlite)")
    parser.add_argument("--reset-breaker", action="store_true", help="close the circuit breaker and end")
    parser.add_argument("--json", action="store_true", help="print decisions as JSON, one per line")


def run(args: argparse.Namespace) -> int:
    """Works until SIGTERM, an interrupt, or the end of what is there with `--once`."""
    agents = read_agents(args)
    home = args.run_dir[0] if args.run_dir else Path(Config.of_process().run_dir)
    policy = read_policy(args)
    lease = read_lease(args)
    path = args.state or state_file(home, dry_run=args.dry_run)
    store = Store(existing(path) if args.reset_breaker else path)
    try:
        job = _HandlerJob(args, home, store, agents, lease)
        if args.reset_breaker:
            return job.reset_breaker()
        isolator = open_isolator(args.isolator, args.option, store)
        served = metrics_served(args, job.counts, lambda: list(job.published), job.not_ready)
        with stopped(job.wake.set) as stop, served:
            job.begin(home, policy, isolator, lease)  # the engine may take its time
            with job.leading.held(stop) as known:
                if not known:
                    return 0
                with job.pulling():
                    return job.read_all(stop) if args.once else job.follow(stop)
    finally:
        store.close()


class _HandlerJob:
    """One run of the command."""

    def __init__(
        self, args: argparse.Namespace, home: Path, store: Store, agents: Agents | None, lease: KubeLease | None
    ) -> None:
        self._args = args
        self._wanted_agents = agents
        self._agents: AgentFeed | None = None
        self._run_dirs = args.run_dir or ([] if agents else [home])
        self._log = IsolationLog(home)
        self._said: set[str] = set()
        self._stale = 0
        self._nothing_found = "it has not looked yet"
        self._state_problem = ""
        self.counts = HandlerCounts()
        self._told: dict[Hashable, tuple[str, float]] = {}
        self.published: deque[Event] = deque(maxlen=1000)
        self.wake = threading.Event()
        self.store = store
        self.leading = Leading(lease, self.wake.set)

    def not_ready(self) -> str:
        """Returns why it is not ready; empty when it is."""
        return self._state_problem or self.leading.waiting or self._nothing_found

    def begin(self, home: Path, policy: Policy, isolator: Isolator, lease: KubeLease | None) -> None:
        """Starts the handler, which asks the scheduler."""
        args, agents, store = self._args, self._wanted_agents, self.store
        self.handler = FaultHandler(
            store,
            policy,
            isolator,
            self._publish,
            already=self._log.has,
            from_beginning=args.from_beginning,
            uptime=machine_uptime,
            leadership=lease,
            hosts_of=agents.hosts_of if agents else None,
        )
        with store.transaction():  # for `asd devices release`
            store.set_meta("isolator", json.dumps([args.isolator, args.option]))
            with contextlib.suppress(UnicodeEncodeError):  # no text; `asd devices` then takes its own run folder
                store.set_meta("home", str(home.resolve()))
        if agents is not None and args.jobs is None:
            say("without --jobs, bad data of a job on two nodes look like two bad devices.")
        self.feed = LogFeed(self.handler, self._run_dirs)
        if self.feed.cursor_problem:
            say(self.feed.cursor_problem)

    def reset_breaker(self) -> int:
        """Closes the circuit breaker, also of a handler that is at work."""
        check_leads(self.store)
        with self.store.transaction():
            was_open = reset_breaker(self.store, time.time())
        state = "is closed now" if was_open else "was not open"
        print(f"The circuit breaker {state}; earlier events no longer isolate a device.")
        return 0

    @contextlib.contextmanager
    def pulling(self) -> Iterator[None]:
        """Pulls from agents while it lasts, if any are to be."""
        if self._wanted_agents is None:
            yield
            return
        allow_many_files()
        access = self._wanted_agents.access
        self._agents = AgentFeed(self.handler, self._wanted_agents.sources, access, self.wake.set)
        try:
            yield
        finally:
            self._agents.puller.close()

    def follow(self, stop: threading.Event) -> int:
        """Works until `stop` is set; returns 1 if it has a Lease and cannot work for a minute."""
        worked = self._ticked = self._settled = time.monotonic()
        while not stop.is_set():
            self.wake.clear()
            try:
                more, self._state_problem = self._look(), ""
                self._said.discard("state")
                worked = time.monotonic()
            except StateError as error:
                more, self._state_problem = False, str(error)
                self._once("state", f"{error} It is tried again.")
                if self._args.lease and time.monotonic() - worked > _UNABLE_SECONDS:
                    say(f"it cannot work for {_UNABLE_SECONDS:g} s, so it ends, and releases the Lease if it has it.")
                    return 1
            if not more and not stop.is_set():
                self.wake.wait(_INTERVAL_SECONDS)
        return 0

    def read_all(self, stop: threading.Event) -> int:
        """Processes all existing events; strikes settle at once, because no other events will come."""
        while not stop.is_set() and (self._look() or self._waits_for_agents()):
            pass
        self._print(self.handler.tick(waits=False))
        self._count()
        cases = Cases(self.store)
        unfinished = cases.in_state("isolating", "releasing") or cases.unsent()
        if not self._args.json:
            numbers, out = self.counts.numbers, self.counts.isolated
            print(f"{numbers['events']} events taken in, {numbers['devices_known']} devices known, {out} isolated.")
            if self._stale:
                print(f"{self._stale} events were too old to act upon; see --from-beginning and --window.")
        silent = self._agents is not None and not all(self.counts.agents.values())
        return 1 if silent or (unfinished and not self._args.dry_run) else 0

    def _waits_for_agents(self) -> bool:
        """Waits for agents that were not heard yet, if there are some."""
        if self._agents is None or self._agents.puller.caught_up:
            return False
        self.wake.wait(_GLANCE_SECONDS)
        self.wake.clear()
        return True

    def _look(self) -> bool:
        """Takes in what is new; returns whether there may be more."""
        told = [each for each in (self.feed.step(), self._agents.step() if self._agents else None) if each is not None]
        decisions = [decision for each in told for decision in each]
        self._count()
        self.leading.tell(acts=self.handler.acts)
        self._print(decisions)
        for decision in decisions:
            if decision.action == "stale":
                self._stale += 1
                host = decision.device.host if decision.device else ""
                self._once(f"stale {host}", f"{decision.reason} Where it is news, the clock of {host} is behind.")
        for sentence in [*self.feed.complaints, *(self._agents.complaints if self._agents else [])]:
            self._once(sentence, sentence)
        for sentence in self._agents.news() if self._agents else []:
            say(sentence)
        if self._nothing_found and not self._agents:
            self._once("nothing", f"{self._nothing_found}.")
        # A strike must not settle before all logs were read, and all agents heard, up to now; a flood has no end.
        now, waits = time.monotonic(), not self._args.once
        settles = not told and (self._agents is None or self._agents.puller.caught_up)
        settles |= waits and now - self._settled > _FLOOD_SECONDS
        if settles or (waits and now - self._ticked > _TICK_SECONDS):
            self._ticked, self._settled = now, now if settles else self._settled
            self._print(self.handler.tick(settles=settles))
        return bool(told)

    def _count(self) -> None:
        """Lets others see how it stands."""
        counts, agents = self.counts, self._agents
        with self.store.guard():
            counts.look(self.handler, self.feed.events + (agents.events if agents else 0), time.time())
        counts.numbers["run_folders"], self._nothing_found = self.feed.folders.found, self.feed.folders.complaint
        if agents is not None:
            counts.agents = {place: not state.since for place, state in agents.puller.states.copy().items()}
            counts.numbers |= agents.numbers()
            self._nothing_found = agents.nothing_found or (self._nothing_found if self._run_dirs else "")

    def _publish(self, event: Event) -> None:
        self._log(event)
        self.published.append(event)

    def _print(self, decisions: Sequence[Decision]) -> None:
        self.counts.count(decisions)
        how = "" if self.handler.acts else "standing by, "
        for each in self._news(decisions, time.time()):
            line = each.to_json() if self._args.json else printable(f"{how}{each.action}: {each.reason}")
            write_line(sys.stdout, line)

    def _news(self, decisions: Sequence[Decision], now: float) -> Iterator[Decision]:
        """Returns news about devices, a bounded number per node and minute; metrics count all."""
        self._told = {about: told for about, told in self._told.items() if 0 <= now - told[1] < _NEWS_SECONDS}
        of_host = Counter(about.host for about in self._told if isinstance(about, Device))
        for decision in decisions:
            about, host = decision.device or decision.reason, decision.device.host if decision.device else ""
            if decision.action in NEWS and self._told.get(about, ("", now))[0] != decision.action:
                of_host[host] += bool(host)
                if of_host[host] <= _MOST_NEWS:
                    self._told[about] = decision.action, now
                    yield decision

    def _once(self, topic: str, sentence: str) -> None:
        if topic not in self._said:
            self._said.add(topic)
            say(sentence)
