"""The way of a reading from tap to verdict and to the next limit, and of an event from its log to an isolation.

A tiny network is trained, and one step of it is profiled: a healthy one, and one with a first-level anomaly. Of the
fault handler that follows a log, the third strike of a device is profiled, until the device is isolated. What is
printed reads as a table of contents: each file where the way enters it, each function of the package when it is called
for the first time, with the first line of its docstring.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

MODES = ("graph", "pynative")
HANDLER = "handler"
"""The way of an event, which needs no training."""
HEALTHY_STEPS = 6
"""Before one is profiled: the first ones compile, and make what is made once."""
TOO_LARGE = 1e12
"""A target so far away that the gradient of the loss breaks the first absolute threshold."""


class Call(NamedTuple):
    """A function of the package that was called."""

    file: str  # where it is
    function: str  # its name
    says: str  # the first line of its docstring; empty where it has none


class Walk:
    """Notes each function of the package that is called inside, once, in order."""

    def __init__(self, package: Path) -> None:
        self._inside, self._root = f"{package}{os.sep}", package.parent
        self._seen: set[CodeType] = set()
        self.calls: list[Call] = []  # what was called
        # the folders that the way goes through; one that it comes back to stands there again
        self.rooms: list[str] = []

    def __enter__(self) -> Walk:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *err: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(self._inside) or code in self._seen:
            return
        self._seen.add(code)
        file = Path(code.co_filename).relative_to(self._root).as_posix()
        room = file.rpartition("/")[0]
        self.rooms += [room] if [room] != self.rooms[-1:] else []
        text = code.co_consts[0] if code.co_consts and isinstance(code.co_consts[0], str) else ""
        self.calls.append(Call(file, getattr(code, "co_qualname", code.co_name), text.strip().partition("\n")[0]))

    @property
    def files(self) -> list[str]:
        """The files, in the order in which the way enters them."""
        return list(dict.fromkeys(call.file for call in self.calls))

    def to_json(self) -> dict[str, Any]:
        """Counts and calls."""
        return {"files": len(self.files), "functions": len(self.calls), "calls": [list(call) for call in self.calls]}

    def text(self, title: str) -> str:
        """A table of contents."""
        counts = f"{len(self.files)} files, {len(self.calls)} functions, {len(self.rooms) - 1} changes of room"
        lines = [f"{title}: {counts}"]
        file = ""
        for call in self.calls:
            lines += [f"  {call.file}"] if call.file != file else []
            file = call.file
            lines.append(f"    {call.function:<44}  {call.says}".rstrip())
        return "\n".join(lines)


def training(mode: str, settings: dict[str, str]) -> Callable[[float], None]:
    """A function that makes and judges one step, whose target is its argument."""
    import mindspore as ms
    import numpy as np
    from mindspore import Tensor, nn, ops

    from asd import AnomalyDetected, Config
    from asd.operators import StepMonitor

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.last = nn.Dense(8, 8), nn.LayerNorm((8,)), nn.Dense(8, 4)

        def construct(self, x, y):
            return ops.mean((self.last(self.norm(self.first(x))) - y) ** 2)

    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    net = Net()
    optimizer = nn.Adam(net.trainable_params(), 1e-3)
    monitor = StepMonitor(Config.from_env(settings), sinks=[])
    monitor.attach(net, optimizer)
    train_step = monitor.watch_step(nn.TrainOneStepCell(net, optimizer))
    x = Tensor(np.ones((6, 8), np.float32))

    def step(target: float) -> None:
        y = Tensor(np.full((6, 4), target, np.float32))
        loss = train_step(x, y)
        with contextlib.suppress(AnomalyDetected):
            monitor.step(loss)

    return step


def walk_of(mode: str, settings: dict[str, str]) -> dict[str, Walk]:
    """What a healthy step calls, and what one with a first-level anomaly."""
    import asd

    package = Path(asd.__file__).parent
    walks = {"a healthy step": Walk(package), "a step with a first-level anomaly": Walk(package)}
    step = training(mode, settings)
    for _ in range(HEALTHY_STEPS):
        step(1.0)
    for walk, target in zip(walks.values(), (1.0, TOO_LARGE), strict=True):
        with walk:
            step(target)
    return walks


def isolation_walk() -> dict[str, Walk]:
    """What the third strike of a device calls, from its line in a log to the published isolation."""
    import asd
    from asd.cli.shared.isolation import IsolationLog
    from asd.event import Event
    from asd.handler import FaultHandler, NoIsolator, Policy, Store
    from asd.handler.inputs.feed import LogFeed
    from asd.origin import Origin
    from asd.verdict import Level

    fields = {"kind": "anomaly", "checkpoint": "c", "rule": "adaptive", "feature": "l2", "reason": "too large"}
    with tempfile.TemporaryDirectory() as folder:
        now = [time.time()]
        store, log = Store(Path(folder, "handler.sqlite")), IsolationLog(Path(folder))
        handler = FaultHandler(store, Policy(), NoIsolator(store), log, lambda: now[0], already=log.has)
        feed, walk = LogFeed(handler, [Path(folder)]), Walk(Path(asd.__file__).parent)
        for number in range(3):
            now[0] += 100.0
            told = {**fields, "step": number + 1, "value": 1e9 + number, "time": now[0]}
            event = Event(
                origin=Origin("job", 0, "node7", "Ascend:3"), level=Level.ERROR, refused=True, limits=(), **told
            )
            with Path(folder, "events-rank0.jsonl").open("a") as file:
                file.write(event.to_json() + "\n")
            with walk if number == 2 else contextlib.nullcontext():
                feed.step()
        now[0] += 31.0  # until it is clear that no other device of the job raises
        with walk:
            decisions = handler.tick()
        store.close()
    if [each.action for each in decisions] != ["isolated"]:
        raise SystemExit(f"the third strike did not isolate the device: {decisions}")
    return {"from a log to an isolation": walk}


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the way in each mode and, if asked, writes the same as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="example: python benchmarks/walk.py --mode graph",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--mode", choices=(*MODES, HANDLER), help="only this; all if not given, each in its own process"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a variable of asd; may be given again"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE; needs --mode")
    options = parser.parse_args(arguments)
    if options.json is not None and options.mode is None:
        parser.error("--json needs --mode, for each mode has a file of its own")
    if any("=" not in each for each in options.set):
        parser.error("--set takes NAME=VALUE")
    if options.mode is None:
        given = [word for each in options.set for word in ("--set", each)]
        return max(
            subprocess.run([sys.executable, __file__, "--mode", mode, *given]).returncode for mode in (*MODES, HANDLER)
        )
    os.environ["NPU_ASD_ENABLE"] = "1"  # before the import: every other way to switch it on is shorter
    with tempfile.TemporaryDirectory() as folder:
        settings = {"NPU_ASD_ENABLE": "1", "ASD_RUN_DIR": folder, **dict(each.split("=", 1) for each in options.set)}
        walks = isolation_walk() if options.mode == HANDLER else walk_of(options.mode, settings)
    for title, walk in walks.items():
        print(walk.text(f"{options.mode}, {title}"), end="\n\n", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps({title: walk.to_json() for title, walk in walks.items()}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
