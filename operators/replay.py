"""Makes a step again, without a trace, to find out who is to blame for its anomaly.

The gate refuses every update meanwhile, so the same compiled graph runs and nothing of it reaches a weight. What else
a step may write, such as moving statistics, gradient buffers and random streams, begins each run as the step began, and
is put back afterwards to what the step left. In data parallel all ranks do the same: once each its own batch, then the
suspect's, because their steps wait for each other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn

from asd.errors import StateError, UnsupportedError
from asd.event import Event
from asd.operators import kernel
from asd.operators.base import ASDBase
from asd.operators.exchange import Exchange, pack, unpack
from asd.operators.narrowing import Narrowed, Narrowing
from asd.operators.random_state import (
    RandomState,
    compiled_functions,
    control_dropouts,
    forget_draws,
    uncontrolled,
    watch_draws,
)
from asd.operators.site import Site
from asd.operators.slots import table
from asd.operators.weights import hashes_of, total_of
from asd.reading import divisor
from asd.replay import Answer, Finding, assignment, difference, find

__all__ = ["Replay", "Step", "bits_of_first"]

_MOST_KEPT = 1 << 20
_MOVING = ("moving_mean", "moving_variance")  # of BatchNorm, which does not read them while it trains
_UNREPEATABLE = "this loop shows no way to repeat a step: call it through StepMonitor.watch_step"
_COMES_BACK = ("persistent", "undetermined")
"""Verdicts after which making the step again can show the fault once more."""
_MOST_SEARCHES = 3
"""Of one training; a fault that stays says the same in each, and the dumps take room."""
_PARALLEL = ("stand_alone", "data_parallel")


class Step(NamedTuple):
    """A step that can be made again.

    Attributes:
        run: Makes it.
        args: With these arguments.
        kwargs: And these.
    """

    run: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}


class Replay:
    """Repeats steps of one training.

    Args:
        net: The network or the training cell around it; must not be compiled yet.
        optimizer: A guarded optimizer.
        sites: The checkpoints whose values are compared.
        also: More Parameters that a step may change, such as those of a loss scaler.
        exchange: The ranks; those of this job if not given.

    Attributes:
        step: The step that was made last, or None where it is not known.
        narrowed: Which operator the last anomaly came from, where that was asked for.
    """

    def __init__(
        self, net: nn.Cell, optimizer: nn.Cell, sites: Sequence[Site], also: Sequence[Parameter] = (),
        exchange: Exchange | None = None,
    ) -> None:  # fmt: skip
        self.step: Step | None = None
        self.narrowed: Narrowed | None = None
        self._searches = 0
        self._net, self._sites = net, sites
        control_dropouts(net)
        watch_draws()
        self._random = RandomState()
        self._exchange = exchange if exchange is not None else Exchange()
        self._compiled_before = compiled_functions()
        self._weights = list(net.trainable_params())
        left_out = {id(parameter) for parameter in [*optimizer.get_parameters(), *self._weights]}
        held = [*net.get_parameters(), *also, *_of_operators(net)]
        self._written = list({id(parameter): parameter for parameter in held if id(parameter) not in left_out}.values())
        self._read = [parameter for parameter in self._written if not parameter.name.endswith(_MOVING)]
        self._moving = [parameter for parameter in self._written if parameter.name.endswith(_MOVING)]
        self._too_large = sum(parameter.nbytes for parameter in self._read) > _MOST_KEPT
        self._before: tuple[list[np.ndarray], Sequence[Any]] | None = None
        self._searched = False

    def remember(self, step: Step) -> None:
        """Says that `step` comes next, and keeps what it begins with but for weights and optimizer, which will stay."""
        if self.step is not None and not self._searched:
            self._obstacle()  # the step is compiled by now: its graph is searched once, before a replay is in a hurry
            self._searched = True
        self.step = step
        forget_draws()
        if not self._too_large:
            self._before = [_host(parameter) for parameter in self._read], self._random.save()

    def judge(
        self, original: Answer, anomaly: Event | None, scale: float = 1.0, *, folder: Path | None = None
    ) -> Finding | None:
        """Makes the last step again and says what came of it; in data parallel a call of all ranks.

        Args:
            original: What the step came to.
            anomaly: The first first-level anomaly of this rank, None if it has none.
            scale: The loss scale of the step.
            folder: Where the search for the operator leaves what it finds, the same choice on all ranks; None for no
                search. See `asd.operators.narrowing`.

        Returns:
            The verdict about this rank, None if it has no anomaly.

        Raises:
            RankLostError: Another rank did not answer.
        """
        told = self._tell(suspect=anomaly is not None, obstacle=self._obstacle())
        suspects = [rank for rank, words in enumerate(told) if words["suspect"]]
        if not suspects:
            return None
        obstacles = [(rank, words["obstacle"]) for rank, words in enumerate(told) if words["obstacle"]]
        if obstacles:
            rank, reason = obstacles[0]
            where = "" if rank == self._exchange.rank else f"on rank {rank}: "
            return Finding("undetermined", where + reason) if anomaly is not None else None
        self.narrowed = None
        after = [_host(parameter) for parameter in self._written], self._random.save()
        slots = table()
        slots.begin_replay()
        try:
            if self._exchange.size == 1:
                finding = self._alone(original, _breaks(anomaly, scale))
            else:
                finding = self._together(original, suspects, _breaks(anomaly, scale))
            if folder is not None:
                finding = self._narrow(finding, suspects, folder)
            return finding if anomaly is not None else None
        finally:
            slots.read(self._sites)
            slots.end_replay()
            self._put(self._written, *after)

    def _obstacle(self) -> str:
        """Why the last step must not be made again, or an empty text."""
        try:
            return self._find_obstacle()
        except Exception as error:  # all ranks go on together, whatever happens on one of them
            return repr(error)

    def _find_obstacle(self) -> str:
        if self.step is None:
            return _UNREPEATABLE
        if self._before is None:
            size = sum(parameter.nbytes for parameter in self._read) / 2**20
            return f"a step changes {size:.1f} MiB besides weights and optimizer, too much to be kept before each step"
        mode = ms.get_auto_parallel_context("parallel_mode")
        if self._exchange.size > 1 and mode not in _PARALLEL:
            return f"ranks hold different parts of the network in parallel mode {mode}"
        cells = [cell for root in self._roots() for _, cell in root.cells_and_names()]
        return uncontrolled(cells, compiled_functions() - self._compiled_before)

    def _roots(self) -> Iterator[nn.Cell]:
        yield self._net
        if self.step is not None:
            run = getattr(self.step.run, "__self__", self.step.run)
            if isinstance(run, nn.Cell):
                yield run

    def _alone(self, original: Answer, abnormal: Callable[[Answer], bool]) -> Finding:
        again, failure = self._run()
        repeated = None
        if not failure and difference(original, again):
            # A third run tells hardware that failed once from a step that never says the same twice.
            repeated, failure = self._run()
        if failure:
            return Finding("undetermined", failure)
        return find(original, again, repeated=repeated, abnormal=abnormal)

    def _together(self, original: Answer, suspects: list[int], abnormal: Callable[[Answer], bool]) -> Finding:
        rank, size = self._exchange.rank, self._exchange.size
        runs = assignment(size, suspects)
        again, failure = self._run()
        parcel = self._pack() if rank in suspects else b""
        first = self._tell(
            failure=failure, changed=difference(original, again), size=len(parcel), weights=self._hash_of_weights()
        )
        failures = [words["failure"] for words in first if words["failure"]]
        if failures:
            return Finding("undetermined", failures[0])
        borrowed = b""
        for root in sorted({batch for taker, batch in enumerate(runs) if batch != taker}):
            message = self._exchange.broadcast(parcel, root, first[root]["size"])
            borrowed = message if root == runs[rank] and root != rank else borrowed
        answer, failure = self._run(borrowed)
        second = self._tell(failure=failure, answer=answer.to_json())
        failures = [words["failure"] for words in second if words["failure"]]
        if failures:
            return Finding("undetermined", failures[0])
        siblings = [
            Answer.from_json(second[taker]["answer"])
            for taker, batch in enumerate(runs)
            if batch == rank != taker and first[taker]["weights"] == first[rank]["weights"]
        ]
        unsteady = [
            f"rank {other}: {words['changed']}"
            for other, words in enumerate(first)
            if words["changed"] and other not in suspects
        ]
        return find(
            original,
            again,
            repeated=answer if runs[rank] == rank else None,
            siblings=siblings,
            abnormal=abnormal,
            no_sibling="no other rank has the same weights",
            unsteady=unsteady[0] if unsteady else "",
        )

    def _narrow(self, finding: Finding, suspects: list[int], folder: Path) -> Finding:
        """Looks for the operator of the first suspect whose fault comes back; its finding tells what came of it."""
        rank = self._exchange.rank
        told = self._tell(wanted=rank in suspects and finding.verdict in _COMES_BACK)
        wanted = [other for other, words in enumerate(told) if words["wanted"]]
        if not wanted or self._searches == _MOST_SEARCHES:
            return finding
        self._searches += 1
        suspect, narrowing = wanted[0], Narrowing(self._net, lambda parcel: self._run(parcel)[1], self._exchange)
        seeds = self._random.seeds()
        try:
            if self._exchange.size == 1:
                self.narrowed = narrowing.alone(folder)
            else:
                parcel = self._sent(self._pack() if rank == suspect else b"", suspect)
                # Every tensor is compared now, and masks that begin anew in PyNative too.
                self._random.set_seeds(unpack(self._sent(pack([seeds]), suspect))[0])
                narrowing.begin_with(self._moving, unpack(self._sent(pack(list(map(_host, self._moving))), suspect)))
                others = [other for other in range(self._exchange.size) if other != suspect]
                sibling = next((other for other in others if other not in suspects), others[0])
                mine = folder if rank == suspect else None
                self.narrowed = narrowing.together(suspect, sibling, parcel, mine)
        except (UnsupportedError, StateError, OSError) as error:
            return finding._replace(reason=f"{finding.reason}; the operator was not looked for to the end: {error}")
        finally:
            self._random.set_seeds(seeds)
        if self.narrowed is None:
            return finding
        return finding._replace(reason=f"{finding.reason}. {self.narrowed.sentence}")

    def _sent(self, message: bytes, root: int) -> bytes:
        """The message of `root`, whose length only that rank knows."""
        return self._exchange.broadcast(message, root, self._tell(size=len(message))[root]["size"])

    def _run(self, parcel: bytes = b"") -> tuple[Answer, str]:
        """Makes the step from where it began, or that of another rank; the answer, and why there is none if so."""
        slots = table()
        try:
            outputs = self._make(parcel)
            loss = bits_of_first(outputs)  # a compiled graph runs on until an output is read
        except UnsupportedError as error:
            return Answer("", ()), str(error)
        except Exception as error:  # the other ranks must hear of it
            return Answer("", ()), f"the step can't be made again: {error!r}"
        hashes = slots.hashes(self._sites)
        found = {reading.checkpoint: reading for reading in slots.read(self._sites)}
        pairs = [(found[site.name], i) for i, site in enumerate(self._sites) if site.name in found]
        return Answer.of(loss, [reading for reading, _ in pairs], [hashes[i] for _, i in pairs] if hashes else []), ""

    def _make(self, parcel: bytes) -> Any:
        assert self.step is not None and self._before is not None  # noqa: PT018 - `_obstacle` saw to it
        run, args, kwargs = self.step
        state, streams = self._before
        if parcel:
            arrays = iter(unpack(parcel))
            args, kwargs = _with_tensors((args, dict(kwargs)), arrays)
            state = [next(arrays) for _ in self._read]
            streams = list(arrays)
        self._put(self._read, state, streams)
        return run(*args, **kwargs)

    def _pack(self) -> bytes:
        assert self.step is not None and self._before is not None  # noqa: PT018 - as above
        state, streams = self._before
        tensors = [_host(tensor) for tensor in _tensors((self.step.args, dict(self.step.kwargs)))]
        return pack([*tensors, *state, *self._random.to_arrays(tuple(streams))])

    def _put(self, parameters: Sequence[Parameter], values: Sequence[np.ndarray], streams: Any) -> None:
        for parameter, value in zip(parameters, values, strict=True):
            if _host(parameter).tobytes() != value.tobytes():
                parameter.copy_(_tensor_like(parameter, value))  # not set_data: compiled graphs keep the old memory
        self._random.restore(streams)

    def _tell(self, **words: Any) -> list[dict[str, Any]]:
        """What every rank has to say."""
        return [json.loads(message) for message in self._exchange.gather(json.dumps(words).encode())]

    def _hash_of_weights(self) -> int:
        return total_of(hashes_of(self._weights, use_kernel=kernel.library is not None))


def _breaks(anomaly: Event | None, scale: float) -> Callable[[Answer], bool]:
    """Whether an answer breaks the limit that `anomaly` broke, at the same checkpoint, or is not finite there."""

    def breaks(answer: Answer) -> bool:
        if anomaly is None:
            return False
        reading = next((reading for reading in answer.readings if reading.checkpoint == anomaly.checkpoint), None)
        if reading is None:
            return False
        if reading.non_finite:
            return True
        raw = {"l2": reading.l2, "mean": reading.mean_abs}.get(anomaly.feature, reading.max_abs)
        value = raw / divisor(reading.kind, scale)
        value = value * value if anomaly.feature == "max_square" else value
        return any(value > limit for limit in anomaly.limits)

    return breaks


def _of_operators(net: nn.Cell) -> Iterator[Parameter]:
    """Those of check operators, which belong to no cell."""
    for _, cell in net.cells_and_names():
        for value in vars(cell).values():
            if isinstance(value, ASDBase):
                yield from (held for held in vars(value).values() if isinstance(held, Parameter))


def _host(tensor: Tensor, *, copy: bool = True) -> np.ndarray:
    if tensor.dtype == ms.bfloat16:  # NumPy lacks it; float32 holds each of its values
        tensor = tensor.astype(ms.float32)
    array: np.ndarray = tensor.asnumpy()
    return array.copy() if copy else array


def _tensor_like(template: Tensor, array: np.ndarray) -> Tensor:
    return Tensor(array).astype(template.dtype) if template.dtype == ms.bfloat16 else Tensor(array, template.dtype)


def _tensors(tree: Any) -> Iterator[Tensor]:
    """The tensors of nested tuples, lists and dicts, in a fixed order."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for branch in tree:
            yield from _tensors(branch)
    elif isinstance(tree, dict):
        for branch in tree.values():
            yield from _tensors(branch)


def _with_tensors(tree: Any, arrays: Iterator[np.ndarray]) -> Any:
    """The same with the tensors' values from `arrays`."""
    if isinstance(tree, Tensor):
        return _tensor_like(tree, next(arrays))
    if isinstance(tree, (tuple, list)):
        branches = [_with_tensors(branch, arrays) for branch in tree]
        return type(tree)(*branches) if hasattr(tree, "_fields") else type(tree)(branches)
    if isinstance(tree, dict):
        return {key: _with_tensors(branch, arrays) for key, branch in tree.items()}
    return tree


def bits_of_first(outputs: Any) -> bytes:
    """The bits of a step's first output, such as its loss; none where that is no tensor."""
    while isinstance(outputs, (tuple, list)) and outputs:
        outputs = outputs[0]
    return _host(outputs, copy=False).tobytes() if isinstance(outputs, Tensor) else b""
