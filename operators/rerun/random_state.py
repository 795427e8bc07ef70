"""Random streams: MindSpore's generator, NumPy's and Python's can be restored, those of single operators cannot."""

import random
import re
from collections.abc import Iterable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.ops import operations as P  # noqa: N812
from mindspore.train import mind_ir_pb2

from asd.operators.private import patches
from asd.operators.private.cells import primitives
from asd.operators.private.compiler import compiled_graph

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
_drawn: set[str] = set()
_searched: dict[str, frozenset[str]] = {}


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


def restore(state: Sequence[Any]) -> None:
    """Restores a state that `save` or `as_arrays` returned."""
    if isinstance(state, tuple):
        state = as_arrays(state)
    generator, words, gauss, python_words, python_gauss = state
    ms.set_rng_state(Tensor(generator))
    position, has_gauss, cached = gauss.tolist()
    np.random.set_state(("MT19937", words, int(position), int(has_gauss), cached))  # noqa: NPY002
    version, *python = python_words.tolist()
    random.setstate((version, tuple(python), python_gauss.tolist()[0] if python_gauss.size else None))


def uncontrolled(cells: Sequence[nn.Cell], functions: Iterable[str] = ()) -> str:
    """Returns why a step with these cells cannot be re-run; empty if it can.

    Compiled graphs are searched for operators that draw random numbers; `watch_draws` notes those that PyNative called
    since `forget_draws`.

    Args:
        cells: The cells of the step.
        functions: Phases of jitted functions it may call, from `compiled_functions`.
    """
    held = {
        type(value).__name__
        for cell in cells
        for value in [*vars(cell).values(), *primitives(cell).values()]
        if isinstance(value, ops.Primitive) and type(value).__name__ in _DRAWING
        if cell.training and not _drops_nothing(value)
    }
    phases = [*(phase for cell in cells for phase in cell.compile_cache), *functions]
    found = ", ".join(sorted(held | _drawn | _drawing_in_graphs(phases)))
    return f"the step draws random numbers that cannot be restored ({found})" if found else ""


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


def _drawing_in_graphs(phases: Iterable[str]) -> set[str]:
    return set().union(*(_drawing_in(phase) for phase in phases))


def _drawing_in(phase: str) -> frozenset[str]:
    """Returns the random operators of a graph; cached, since writing out a large graph is slow and it never changes."""
    if phase not in _searched:
        graph = compiled_graph(phase)
        found = frozenset(name.decode() for name in _OPERATOR.findall(graph)) & _DRAWING
        if "Dropout" in found and not _drops(graph):
            found -= {"Dropout"}
        if not graph:  # it may be compiled yet
            return found
        _searched[phase] = found
    return _searched[phase]


def _drops(graph: bytes) -> bool:
    """Returns whether any `Dropout` of a graph in the format MindIR drops anything."""
    model = mind_ir_pb2.ModelProto()
    model.ParseFromString(graph)
    nodes = [node for part in (model.graph, *model.functions) for node in part.node]
    ones = {
        name
        for node in nodes
        if node.op_type == "Constant" and any(value.name == "value" and value.f == 1 for value in node.attribute)
        for name in node.output
    }
    return any(ones.isdisjoint(node.input[1:2]) for node in nodes if node.op_type.startswith("REF::Dropout:"))


def _noting(call: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
    if not _drops_nothing(operator):
        _drawn.add(type(operator).__name__)
    return call(operator, *args, **kwargs)
