"""Events of thousands of devices through the pull, the handler and the decision; `scale.py --parts pulling` runs it.

The agents are one process that answers as they do, from memory: `/events` with a cursor, keeping a question until there
is something, at an address of 127.0.0.0/8 for each node. Pull, handler, decisions and database are the real ones.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import re
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asd import Event
from asd.exporters.run_files.event_log import EventLog
from asd.handler import FaultHandler, NoIsolator, Policy, Store
from asd.handler.inputs.agent_client import Access
from asd.handler.inputs.agent_feed import AgentFeed
from asd.handler.inputs.targets import FileTargets

MOST_SECONDS, PER_SECOND = 20, 1000  # of the histogram
_JOURNAL = "a" * 32
_QUERY = re.compile(rb"GET /events\?after=(?:a+\.(\d+))?&limit=(\d+)(?:&wait=(\d+))? ")


class _Agents(asyncio.Protocol):
    """The connection of a handler to the agent of one node."""

    kept: dict[str, list[str]]  # what was not fetched yet
    fetched: dict[str, int]
    waiting: dict[str, tuple[_Agents, int, int]]

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.node = _node_of(transport.get_extra_info("sockname")[0])

    def data_received(self, data: bytes) -> None:
        found = _QUERY.match(data)
        if found is None:
            raise AssertionError(data)
        start, limit = int(found[1] or 0), int(found[2])
        kept = self.kept[self.node]
        del kept[: start - self.fetched[self.node]]
        self.fetched[self.node] = start
        if found[3] and not kept:
            self.waiting[self.node] = self, start, limit
        else:
            self.answer(start, limit)

    def answer(self, start: int, limit: int) -> None:
        told = self.kept[self.node][:limit]
        body = ("[" + ",\n".join(told) + "]\n").encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        head += f"X-ASD-Cursor: {_JOURNAL}.{start + len(told)}\r\nX-ASD-Missed: 0\r\nConnection: keep-alive\r\n\r\n"
        self.transport.write(head.encode() + body)


def _node_of(address: str) -> str:
    _, _, high, low = map(int, address.split("."))
    return f"node-{256 * high + low - 1:04}"


def address_of(node: int) -> str:
    """Where the agent of a node stands."""
    return f"127.1.{(node + 1) // 256}.{(node + 1) % 256}"


def _serve(nodes: int, an_event: Callable[[int, int], Event], devices: int, rate: float, total: int, link: Any) -> None:
    asyncio.run(_work(nodes, an_event, devices, rate, total, link))


async def _work(
    nodes: int, an_event: Callable[[int, int], Event], devices: int, rate: float, total: int, link: Any
) -> None:
    names = [f"node-{node:04}" for node in range(nodes)]
    _Agents.kept, _Agents.fetched, _Agents.waiting = {name: [] for name in names}, dict.fromkeys(names, 0), {}
    server = await asyncio.get_running_loop().create_server(_Agents, "0.0.0.0", 0, backlog=4096)
    link.send(server.sockets[0].getsockname()[1])
    while not link.poll():
        await asyncio.sleep(0.05)
    link.recv()
    source, written, began = random.Random(0), 0, time.monotonic()
    while written < total:
        due = min(total, int((time.monotonic() - began) * rate))
        touched = set()
        while written < due:
            event = an_event(written, source.randrange(devices))
            _Agents.kept[event.host].append(event.to_json())
            touched.add(event.host)
            written += 1
        for node in touched & _Agents.waiting.keys():
            agent, start, limit = _Agents.waiting.pop(node)
            agent.answer(start, limit)
        await asyncio.sleep(0.01)
    while not link.poll():
        await asyncio.sleep(0.05)


def pulling(
    an_event: Callable[[int, int], Event],
    devices: int,
    per_node: int,
    rate: float,
    total: int,
    resident: Callable[[], float],
) -> dict[str, Any]:
    """Pulls so many events at a rate and says how long each took from its time to its decision."""
    nodes, load = -(-devices // per_node), os.getloadavg()[0]
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    agents = context.Process(target=_serve, args=(nodes, an_event, devices, rate, total, theirs), daemon=True)
    agents.start()
    port = ours.recv()
    waited = [0] * (MOST_SECONDS * PER_SECOND + 1)
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        groups = [
            {"targets": [f"{address_of(node)}:{port}"], "labels": {"node": f"node-{node:04}"}} for node in range(nodes)
        ]
        (folder / "agents.json").write_text(json.dumps(groups))
        store = Store(folder / "handler.sqlite")
        handler = FaultHandler(store, Policy(), NoIsolator(store), EventLog(folder / "events-handler.jsonl"))
        take_in = handler.handle_many

        def timed(events: Any, cursor: Any = None) -> Any:
            decided = take_in(events, cursor)
            now = time.time()
            for event in events:
                waited[min(int((now - event.time) * PER_SECOND), len(waited) - 1)] += 1
            return decided

        handler.handle_many = timed  # type: ignore[method-assign]
        wake = threading.Event()
        feed = AgentFeed(handler, [FileTargets(folder / "agents.json")], Access, wake.set)
        while not feed.puller.caught_up:
            time.sleep(0.1)
        ours.send("begin")
        rows = _follow(handler, feed, wake, total, resident)
        size = sum(path.stat().st_size for path in folder.glob("handler.sqlite*")) / 2**20
        known = store.db.execute("SELECT count(*) FROM device").fetchone()[0]
        feed.puller.close()
        handler.close()
    ours.send("end")
    agents.join(10)
    half = [row for row in rows if row["seconds"] >= rows[-1]["seconds"] / 2]
    return {
        "asked_rate": rate,
        "agents": nodes,
        "devices": known,
        "events": feed.events,
        "simulated": "the agents",
        "load_before": load,
        "load_after": os.getloadavg()[0],
        "processor_seconds": rows[-1]["processor_seconds"],
        "rate": feed.events / rows[-1]["seconds"],
        "processor_share": rows[-1]["processor_seconds"] / rows[-1]["seconds"],
        "median_seconds": _quantile(waited, 0.5),
        "p99_seconds": _quantile(waited, 0.99),
        "longest_seconds": _quantile(waited, 1.0),
        "memory_growth_in_second_half_mib": half[-1]["memory_mib"] - half[0]["memory_mib"],
        "database_mib": size,
        "over_time": rows,
    }


def _follow(
    handler: FaultHandler, feed: AgentFeed, wake: threading.Event, total: int, resident: Callable[[], float]
) -> list[dict[str, float]]:
    """What `asd handler` does, until all was taken in."""
    rows: list[dict[str, float]] = []
    began = told = time.monotonic()
    used = time.process_time()
    while feed.events < total:
        wake.clear()
        decisions = feed.step()
        feed.news()
        if decisions is None:
            handler.tick()
            wake.wait(0.2)
        now = time.monotonic()
        if now - began > 10 * total / 5000 + 60:
            raise AssertionError(f"{feed.events} of {total} events after {now - began:.0f} s")
        if now - told >= 5.0 or feed.events >= total:
            told = now
            rows.append(
                {
                    "seconds": now - began,
                    "events": feed.events,
                    "memory_mib": resident(),
                    "processor_seconds": time.process_time() - used,
                }
            )
    return rows


def _quantile(waited: list[int], share: float) -> float:
    wanted, seen = share * sum(waited), 0
    for place, count in enumerate(waited):
        seen += count
        if seen >= wanted:
            return (place + 1) / PER_SECOND
    return float(len(waited)) / PER_SECOND
