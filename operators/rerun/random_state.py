"""Random streams: MindSpore's generator, NumPy's and Python's can be restored, those of single operators cannot."""

import random
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.ops import operations as P  # noqa: N812
from mindspore.train import mind_ir_pb2

from asd.errors import and_more
from asd.operators.private import patches
from asd.operators.private.cells import primitives
from asd.operators.private.compiler import compiled_graph
from asd.operators.sensors.install import cell_name

_DRAWING_NAMES = """
    Bernoulli Dropout Dropout2D Dropout3D DropoutDoMask DropoutGenMask Gamma LogNormalReverse
    LogUniformCandidateSampler Multinomial MultinomialWithReplacement NonDeterministicInts
    ParameterizedTruncatedNormal Poisson RandomCategorical RandomChoiceWithMask RandomGamma RandomPoisson
    RandomShuffle Randperm RandpermV2 RReLU StandardLaplace StandardNormal TruncatedNormal Uniform
    UniformCandidateSampler UniformInt UniformReal
"""
_DRAWING = frozenset(_DRAWING_NAMES.split())
"""Operators whose kernels keep their own random stream."""
_OPERATOR = re.compile(rb"REF::(\w+):\d+")
_drawn: dict[str, int] = {}  # by which cell, its id, or 0
_searched: dict[str, frozenset[tuple[str, str]]] = {}


def save() -> tuple[Any, ...]:
    """Returns the state of the streams that can be restored; later draws do not change it."""
    # Quick, since it runs before each step; `as_arrays` is slower.
    return ms.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002 - what nets draw from


def as_arrays(state: tuple[Any, ...]) -> list[np.ndarray]:
    """Returns the state as arrays, which another rank can `restore`."""
    generator, (_, words, position, has_gauss, cached), (version, python_words, gauss) = state
    return [
        generator.asnumpy(),
        words,
        np.array([position, has_gauss, cached], np.float64),
        np.array((version, *python_words), np.int64),
        np.array([] if gauss is None else [gauss], np.float64),
    ]


def restore(state: Sequence[Any], *, python: bool) -> None:
    """Restores a state that `save` or `as_arrays` returned; only with `python` that of NumPy and Python too.

    A compiled step does not draw from these, but threads of this process that prepare the next batches may.
    """
    if isinstance(state, tuple):
        state = as_arrays(state)
    generator, words, gauss, python_words, python_gauss = state
    ms.set_rng_state(Tensor(generator))
    if not python:
        return
    position, has_gauss, cached = gauss.tolist()
    np.random.set_state(("MT19937", words, int(position), int(has_gauss), cached))  # noqa: NPY002
    version, *state = python_words.tolist()
    random.setstate((version, tuple(state), python_gauss.tolist()[0] if python_gauss.size else None))


def uncontrolled(cells: Mapping[nn.Cell, str], functions: Iterable[str] = ()) -> str:
    """Returns why a step with these cells cannot be re-run; empty if it can.

    Compiled graphs are searched for operators that draw random numbers; `watch_draws` notes those that PyNative called
    since `forget_draws`.

    Args:
        cells: The cells of the step, each with its name.
        functions: Phases of jitted functions it may call, from `compiled_functions`.
    """
    held = {
        (type(value).__name__, name)
        for cell, name in cells.items()
        for value in [*vars(cell).values(), *primitives(cell).values()]
        if isinstance(value, ops.Primitive) and type(value).__name__ in _DRAWING
        if cell.training and not _drops_nothing(value)
    }
    phases = [*(phase for cell in cells for phase in cell.compile_cache), *functions]
    names = {id(cell): name for cell, name in cells.items()}
    held = held.union(((kind, names.get(caller, "")) for kind, caller in _drawn.items()), *map(_drawing_in, phases))
    words = and_more(sorted(f"{kind} of {name}" if name else kind for kind, name in held))
    return f"the step draws random numbers that can't be restored, use those of mint: {words}" if words else ""


def _drops_nothing(operator: ops.Primitive) -> bool:
    """Returns whether this is a dropout whose masks are all ones, as `nn.LSTM` holds one."""
    return getattr(operator, "keep_prob", 0) == 1


def watch_draws() -> None:
    """Notes from now on every random operator that PyNative calls; the calls themselves do not change."""
    for module in (P, ops.auto_generate):
        for name in _DRAWING & set(dir(module)):
            kind = getattr(module, name)
            if isinstance(kind, type):
                patches.wrap(kind, "__call__", _noting, "draws")


def forget_draws() -> None:
    """Begins a new step: earlier draws are not part of it."""
    _drawn.clear()
    if not patches.is_replaced(P.Dropout, "__call__"):  # `disable` came in between
        watch_draws()


def _drawing_in(phase: str) -> frozenset[tuple[str, str]]:
    """Returns the random operators of a graph with their layers; cached, since writing out a large graph is slow."""
    if phase not in _searched:
        graph = compiled_graph(phase)
        found = frozenset(_draws(graph) if any(each.decode() in _DRAWING for each in _OPERATOR.findall(graph)) else ())
        if not graph:  # it may be compiled yet
            return found
        _searched[phase] = found
    return _searched[phase]


def _draws(graph: bytes) -> Iterator[tuple[str, str]]:
    """Returns the random operators of a graph in the format MindIR, without a `Dropout` that drops nothing."""
    model = mind_ir_pb2.ModelProto()
    model.ParseFromString(graph)
    nodes = [node for part in (model.graph, *model.functions) for node in part.node]
    ones = {
        name
        for node in nodes
        if node.op_type == "Constant" and any(value.name == "value" and value.f == 1 for value in node.attribute)
        for name in node.output
    }
    for node in nodes:
        kind = node.op_type.removeprefix("REF::").partition(":")[0]
        if kind in _DRAWING and (kind != "Dropout" or ones.isdisjoint(node.input[1:2])):
            # Such as Default/network-Net/layers-CellList/0-Layer/Dropout-op1
            yield kind, cell_name(".".join(part.rpartition("-")[0] for part in node.domain.split("/")[1:-1]))


def _noting(call: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
    if not _drops_nothing(operator) and type(operator).__name__ not in _drawn:
        _drawn[type(operator).__name__] = _caller()
    return call(operator, *args, **kwargs)


def _caller() -> int:
    """Returns the id of the innermost cell that Python is running; 0 outside of all."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not isinstance(frame.f_locals.get("self"), nn.Cell):
        frame = frame.f_back
    return id(frame.f_locals["self"]) if frame is not None else 0
