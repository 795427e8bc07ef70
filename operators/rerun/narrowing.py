"""From the anomaly of a step to the first operator that computed wrongly, in two more runs of the step at most.

The first run records the CRC-32 of what every module gets and gives; the second one records the tensors between the
last module that agrees and the first one that does not, with every API in between. Trusted is what a sibling rank gives
for the same batch with the same weights; a rank without siblings makes each recorded call again by itself.

Both runs are made in PyNative, because a compiled graph can't be opened after it was compiled. What only the compiled
graph gets wrong is therefore not found, and neither is a fault that does not come back; the answer says so.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, context, nn
from mindspore.common import hook_handle

from asd.dumps.compare.bits import BitDifference
from asd.dumps.compare.calls import CallRows
from asd.dumps.compare.comparison import Options, compare_runs
from asd.dumps.compare.first_divergence import Divergence
from asd.dumps.formats.dump_folder import read_dump
from asd.dumps.formats.slots import split_name
from asd.dumps.pairing.request import Request
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.dumps.record.writer import DumpWriter
from asd.errors import UnsupportedError
from asd.operators.debugger.hooks import current
from asd.operators.debugger.hooks.apis import ApiHooks
from asd.operators.debugger.hooks.cells import hook_modules, hook_operators, unhook
from asd.operators.debugger.hooks.session import Session
from asd.operators.debugger.record import delivery
from asd.operators.debugger.record.recording import DumpRecording
from asd.operators.ranks.exchange import Exchange, pack, unpack
from asd.operators.rerun.recheck import make_again
from asd.rundir.disk import write_whole
from asd.rundir.names import NARROWING_ANSWER as ANSWER

__all__ = ["Narrowed", "Narrowing", "recorded"]

_MODULES, _APIS = "modules", "apis"
_MOST_SENT = 256 << 20
"""Bytes of tensors that a sibling sends; of more, only what tells them apart is sent."""
_MOST_KEPT = 4 << 30
"""Bytes of a step, as its modules hand them on, up to which it is recorded whole."""


_CONFIDENCES = ("low", "medium", "high")


@dataclass(frozen=True)
class Narrowed:
    """What came of it.

    Attributes:
        sentence: The answer.
        kind: `operator`, `weight`, `input`, `communication`, or empty when nothing was found.
        call: The first wrong call; empty when nothing was found.
        confidence: `high`, `medium` or `low`; empty when nothing was found.
        trusted: What the step was compared with, in words.
        folder: Where the dumps and tables are.
        dumps: In it, the dump of the suspect and the trusted one that the answer comes from.
    """

    sentence: str
    kind: str
    call: str
    confidence: str
    trusted: str
    folder: str
    dumps: tuple[str, str]


class Narrowing:
    """Narrows down the steps of one network.

    Args:
        net: The network or a training cell around it.
        run: Makes the step once more, with the batch in the parcel; returns why that failed, or nothing.
        exchange: The ranks.
    """

    def __init__(self, net: nn.Cell, run: Callable[[bytes], str], exchange: Exchange) -> None:
        self._net = network_of(net)
        self._run = run
        self._exchange = exchange
        self._bits: dict[str, BitDifference] = {}
        self._begin: list[tuple[Parameter, np.ndarray]] = []

    def begin_with(self, parameters: Sequence[Parameter], values: Sequence[np.ndarray]) -> None:
        """Gives these Parameters these values before each run; who runs the steps puts back what they had."""
        self._begin = list(zip(parameters, values, strict=True))

    def _make(self, parcel: bytes) -> str:
        for parameter, value in self._begin:
            parameter.copy_(Tensor(value))
        return self._run(parcel)

    def alone(self, folder: Path) -> Narrowed:
        """On a rank that nobody can be compared with.

        Raises:
            UnsupportedError: The step can't be recorded; the sentence says why.
        """
        self._dump(b"", folder / _MODULES / "suspect", _config(_MODULES))
        size = _bytes_of(folder / _MODULES / "suspect")
        if size > _MOST_KEPT:
            raise UnsupportedError(f"a step hands on {size / 2**30:.1f} GiB, too much to record without a sibling.")
        self._dump(b"", folder / _APIS / "suspect", _config(_APIS))
        with pynative():
            made = make_again(folder / _APIS / "suspect" / "dump.json", folder / _APIS / "again")
        if not made:
            raise UnsupportedError("none of the recorded calls can be made again by itself.")
        request = Request(folder / _APIS / "suspect", folder / _APIS / "again")
        divergence = compare_runs(request, folder / _APIS, Options(by="bits")).pairs[0].divergence
        return _told(folder, {_APIS: divergence}, f"{made} of its calls made again one by one", "again")

    def together(self, suspect: int, sibling: int, parcel: bytes, folder: Path | None) -> Narrowed | None:
        """With a sibling; a call of all ranks.

        Args:
            suspect: The rank whose step it is.
            sibling: The rank it is compared with.
            parcel: The suspect's batch.
            folder: Of the suspect, where everything goes; None on the others.

        Returns:
            On the suspect what came of it, None elsewhere.

        Raises:
            UnsupportedError: The step can't be recorded on one of the ranks; on all of them.
            RankLostError: Another rank did not answer.
        """
        divergences: dict[str, Divergence | None] = {}
        scope: Sequence[str] = ()
        with tempfile.TemporaryDirectory() as scratch:
            for level in (_MODULES, _APIS):
                mine = Path(scratch) / level if folder is None else folder / level / "suspect"
                message = self._agreed(lambda: self._part(suspect, sibling, parcel, mine, level, scope))  # noqa: B023
                size = json.loads(self._exchange.gather(json.dumps(len(message)).encode())[sibling])
                message = self._exchange.broadcast(message, sibling, size)
                found: list[Any] = []
                if folder is not None:
                    found = self._agreed(lambda: self._compared(message, folder / level))  # noqa: B023
                    divergences[level], *found = found
                else:
                    self._agreed(list)
                scope = json.loads(self._exchange.gather(json.dumps(found).encode())[suspect])
                if not scope:
                    break
        trusted = f"rank {sibling} with the same batch"
        named = divergences.get(_MODULES)
        if named is not None and named.slot in self._bits:
            divergences[_MODULES] = replace(named, difference=self._bits[named.slot])
        return None if folder is None else _told(folder, divergences, trusted, "sibling")

    def _agreed(self, act: Callable[[], Any]) -> Any:
        """What `act` returns, on all ranks or none: when it fails on one of them they all hear of it."""
        result, failure = None, ""
        try:
            result = act()
        except Exception as error:  # whatever it is, the others wait for this rank
            failure = str(error) or repr(error)
        told = [json.loads(message) for message in self._exchange.gather(json.dumps(failure).encode())]
        failures = [f"rank {rank}: {words}" for rank, words in enumerate(told) if words]
        if failures:
            raise UnsupportedError(failures[0])
        return result

    def _part(self, suspect: int, sibling: int, parcel: bytes, mine: Path, level: str, scope: Sequence[str]) -> bytes:
        """Makes the step and records it where that is wanted; what a sibling has to send."""
        rank = self._exchange.rank
        if rank not in (suspect, sibling):
            failure = self._run_in_pynative(parcel)
            if failure:
                raise UnsupportedError(failure)
            return b""
        self._dump(b"" if rank == suspect else parcel, mine, _config(level, scope))
        return _packed(mine) if rank == sibling else b""

    def _run_in_pynative(self, parcel: bytes) -> str:
        with pynative():
            return self._make(parcel)

    def _dump(self, parcel: bytes, folder: Path, config: DebuggerConfig) -> None:
        with recorded(self._net, folder, config) as session:
            failure = self._make(parcel)
        if failure or session.entries == 0:
            raise UnsupportedError(failure or "no module of the network was called from Python, so none was recorded.")

    def _compared(self, message: bytes, folder: Path) -> list[Any]:
        """Where the suspect and its sibling part, and the scope of the next run."""
        _unpack_into(folder / "sibling", message)
        self._bits.clear()
        options = Options(by="bits", told=self._note)
        divergence = compare_runs(Request(folder / "suspect", folder / "sibling"), folder, options).pairs[0].divergence
        if divergence is None or folder.name == _APIS:
            return [divergence]
        return [divergence, *_scope(folder / "suspect", divergence.call)]

    def _note(self, call: CallRows) -> None:
        """Keeps the bits of what differs: the first run, by which a module may be named, has no tensors."""
        for row in call.rows:
            if row.metrics is not None and row.metrics.difference is not None:
                self._bits[row.name] = row.metrics.difference


@contextmanager
def pynative() -> Iterator[None]:
    """PyNative for a while."""
    before = context.get_context("mode")
    ms.set_context(mode=context.PYNATIVE_MODE)
    try:
        yield
    finally:
        ms.set_context(mode=before)


@contextmanager
def recorded(net: nn.Cell, folder: Path, config: DebuggerConfig) -> Iterator[Session]:
    """Records in `folder` what `net` computes in PyNative meanwhile.

    Unlike `PrecisionDebugger` it may come after the first step, also where that compiled a graph: of the hooks nothing
    is left once this is over.

    Raises:
        UnsupportedError: Something else is being recorded.
    """
    if current.session() is not None:
        raise UnsupportedError("the step is being recorded by a PrecisionDebugger already.")
    stays = hasattr(net, "asd_tap_counts")  # a PrecisionDebugger has put its own hooks there
    version = getattr(hook_handle, "_HOOK_VERSION", 0)
    hook_modules((net,), in_graph=False)
    apis = None
    if config.apis:
        hook_operators((net,), in_graph=False)
        apis = ApiHooks((net,))
    writer = DumpWriter(folder, config, read=delivery.read_moments, check=delivery.crc32)
    session = Session(config, DumpRecording(writer))
    with pynative():
        current.set_session(session)
        if apis is not None:
            apis.put()
        try:
            yield session
        finally:
            if apis is not None:
                apis.take_away()
            current.set_session(None)
            session.finish()
            if not stays:
                unhook((net,))
            # MindSpore compiles its graphs anew when a hook was taken away, also where all are as they were.
            hook_handle._HOOK_VERSION = version


def network_of(cell: nn.Cell) -> nn.Cell:
    """The network inside training cells: these hold the optimizer too, which is no part of it."""
    while isinstance(getattr(cell, "network", None), nn.Cell) and any(
        isinstance(inner, nn.Optimizer) for _, inner in cell.cells_and_names()
    ):
        cell = cell.network
    return cell


def _config(level: str, scope: Sequence[str] = ()) -> DebuggerConfig:
    if level == _MODULES:
        return DebuggerConfig(Path(), level="L0", md5=True)
    return DebuggerConfig(Path(), task="tensor", level="mix", md5=True, scope=tuple(scope))


def _scope(folder: Path, call: str) -> tuple[str, str]:
    """From the call before `call`, which agrees, to `call`; an empty name stands for the beginning or the end."""
    names = list(read_dump(folder / "dump.json").entries)
    before = names[: names.index(call)] if call in names else []
    first = next((name for name in reversed(before) if _ends(name)), "")
    return first, call if _ends(call) else ""


def _ends(name: str) -> bool:
    """Whether a call has an end that is known; gradients of parameters come when they come."""
    return split_name(name)[1] in ("forward", "backward")


def _told(folder: Path, divergences: dict[str, Divergence | None], trusted: str, against: str) -> Narrowed:
    """The most exact of the answers, also written down."""
    level = _best(divergences)
    divergence, dumps = divergences.get(level), (f"{level}/suspect", f"{level}/{against}")
    if divergence is None:
        sentence = (
            f"No call of the network computed wrongly when the step was recorded and compared with {trusted}: the "
            "fault did not come back, or it lies in the communication, the optimizer or the compiled graph."
        )
        told = Narrowed(sentence, "", "", "", trusted, str(folder), dumps)
    else:
        kind, call, confidence = divergence.kind, divergence.call, divergence.confidence
        told = Narrowed(divergence.sentence, kind, call, confidence, trusted, str(folder), dumps)
    write_whole(folder / ANSWER, json.dumps(asdict(told), indent=1) + "\n")
    return told


def _best(divergences: dict[str, Divergence | None]) -> str:
    """APIs say more than modules; but what only the module around them shows is known better by that."""
    by_modules, by_apis = divergences.get(_MODULES), divergences.get(_APIS)
    if by_modules is None or by_apis is None:
        return _MODULES if by_modules is not None else _APIS
    surer = _CONFIDENCES.index(by_modules.confidence) > _CONFIDENCES.index(by_apis.confidence)
    return _MODULES if surer else _APIS


def _bytes_of(folder: Path) -> int:
    slots = [slot for entry in read_dump(folder / "dump.json").entries.values() for slot in entry.slots]
    return sum(4 * int(np.prod(slot.shape, dtype=np.int64)) for slot in slots if slot.scalar is None)


def _packed(folder: Path) -> bytes:
    """The files of a dump; without its tensors where they are too many, for a dump tells them apart by their CRC-32."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    if sum(file.stat().st_size for file in files) > _MOST_SENT:
        files = [file for file in files if file.suffix != ".npy"]
    names = json.dumps([str(file.relative_to(folder)) for file in files])
    return pack([np.frombuffer(part, np.uint8) for part in (names.encode(), *(file.read_bytes() for file in files))])


def _unpack_into(folder: Path, message: bytes) -> None:
    names, *contents = unpack(message)
    for name, content in zip(json.loads(names.tobytes()), contents, strict=True):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.tobytes())
