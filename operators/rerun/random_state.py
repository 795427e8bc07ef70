"""Random streams that can be put back: a replay must draw what the step drew, and leave no trace.

MindSpore's CPU kernels keep the state of their random numbers to themselves; nothing can read it or set it. So dropout,
which training nets draw from, is given masks by our kernel: the same generator, the same seed, the same numbers, and so
the same bits in outputs and gradients, but with a state that can be saved. Where another operator draws from a stream
that can't be put back, `uncontrolled` says so before anything is drawn.
"""

from __future__ import annotations

import ctypes
import functools
import random
import re
import secrets
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812
from mindspore.train import mind_ir_pb2

from asd.errors import UnsupportedError
from asd.operators.kernel import library as kernel
from asd.operators.private.backward import DropoutGrad
from asd.operators.private.cells import primitives
from asd.operators.private.compiler import compiled_graph
from asd.operators.private.mixed_precision import CheckCell, as_operator_reads

__all__ = [
    "RandomState",
    "control_dropouts",
    "forget_draws",
    "uncontrolled",
    "watch_draws",
]

_DRAWING = frozenset({
    "Bernoulli", "Dropout", "Dropout2D", "Dropout3D", "DropoutDoMask", "DropoutGenMask", "Gamma", "LogNormalReverse",
    "LogUniformCandidateSampler", "Multinomial", "MultinomialWithReplacement", "NonDeterministicInts",
    "ParameterizedTruncatedNormal", "Poisson", "RandomCategorical", "RandomChoiceWithMask", "RandomGamma",
    "RandomPoisson", "RandomShuffle", "Randperm", "RandpermV2", "RReLU", "StandardLaplace", "StandardNormal",
    "TruncatedNormal", "Uniform", "UniformCandidateSampler", "UniformInt", "UniformReal",
})  # fmt: skip
"""Operators whose kernels keep a random stream of their own."""
_OPERATOR = re.compile(rb"REF::(\w+):\d+")
_MODULUS = 2**31 - 1
_drawn: set[str] = set()
_searched: dict[str, frozenset[str]] = {}
_watched: set[type] = set()
_living: weakref.WeakValueDictionary[int, Dropout] = weakref.WeakValueDictionary()


def control_dropouts(net: nn.Cell) -> int:
    """Gives every dropout of `net` a stream that can be put back; returns how many there are now.

    The masks are those that MindSpore's kernels draw from the same seeds with one thread; with several, theirs come out
    different each time. Only the operators that cells hold as attributes are reached, as in `nn.Dropout` and
    mindformers' `Dropout`, and only on the CPU where our kernel was built. Do it before the first step.
    """
    if kernel.library is None or ms.get_context("device_target") != "CPU":
        return 0
    for cell in [cell for _, cell in net.cells_and_names()]:
        for name, value in [*vars(cell).items(), *primitives(cell).items()]:
            # Cells of MindSpore and mindformers that drop nothing don't call it.
            if type(value) is P.Dropout and (value.keep_prob < 1 or not hasattr(cell, "keep_prob")):
                vars(cell).pop(name, None)
                primitives(cell).pop(name, None)
                setattr(cell, name, Dropout(value))
    return sum(isinstance(cell, Dropout) for _, cell in net.cells_and_names())


def uncontrolled(cells: Sequence[nn.Cell], functions: Iterable[str] = ()) -> str:
    """Why a step that runs these must not be made again, or an empty text.

    What was compiled is searched for operators that draw random numbers; what PyNative called since `forget_draws` is
    known from `watch_draws`.

    Args:
        cells: The cells of the step.
        functions: Jitted functions it may call, of `compiled_functions`.
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
    return f"the step draws random numbers that can't be drawn again ({found})" if found else ""


def _drops_nothing(operator: ops.Primitive) -> bool:
    """Whether it is a dropout whose masks are all ones, as `nn.LSTM` holds one."""
    return getattr(operator, "keep_prob", 0) == 1


def watch_draws() -> None:
    """From now on every operator that PyNative calls and that draws is noted; calling it does what it did."""
    for module in (P, ops.auto_generate):
        for name in _DRAWING & set(dir(module)):
            cls = getattr(module, name)
            if isinstance(cls, type) and cls not in _watched:
                setattr(cls, "__call__", _noting(name, cls.__call__))  # noqa: B010 - mypy knows methods as fixed
                _watched.add(cls)


def forget_draws() -> None:
    """A new step begins: what was drawn before is none of it."""
    _drawn.clear()


class RandomState:
    """What a step draws from: the dropouts, MindSpore's default generator, NumPy's and Python's."""

    def save(self) -> tuple[Any, ...]:
        """The state; nothing that comes later changes it."""
        streams = _streams()
        # Quick, for it is done before each step; `to_arrays` takes its time.
        return (
            streams["dropout"].copy(),
            streams["state"].copy(),
            ms.get_rng_state(),
            np.random.get_state(),  # noqa: NPY002 - the generator that nets draw from
            random.getstate(),
        )

    def seeds(self) -> np.ndarray:
        """Where each dropout begins when it draws for the first time."""
        return _first_states().copy() if kernel.library is not None else np.zeros(0, np.uint64)

    def set_seeds(self, seeds: np.ndarray) -> None:
        """Puts back what `seeds` returned, here or on another rank of the same program."""
        if seeds.size:
            _first_states()[:] = seeds

    def to_arrays(self, state: tuple[Any, ...]) -> list[np.ndarray]:
        """What another rank of the same program can `restore`."""
        dropouts, states, generator, (_, words, position, has_gauss, cached), (version, python_words, gauss) = state
        return [
            dropouts,
            states,
            generator.asnumpy(),
            words,
            np.array([position, has_gauss, cached], np.float64),
            np.array((version, *python_words), np.int64),
            np.array([] if gauss is None else [gauss], np.float64),
        ]

    def restore(self, state: Sequence[Any]) -> None:
        """Puts back what `save` or `to_arrays` returned.

        Raises:
            UnsupportedError: It is of another program, whose dropouts are others.
        """
        if isinstance(state, tuple):
            state = self.to_arrays(state)
        dropouts, states, generator, words, gauss, python_words, python_gauss = state
        streams = _streams()
        if not np.array_equal(streams["dropout"][: dropouts.size], dropouts):
            raise UnsupportedError("the step draws random numbers at other places than another rank's")
        streams["state"][: dropouts.size] = states
        if kernel.library is not None:
            # A stream that has been opened since begins anew when it is asked again.
            kernel.library.asd_used_streams()[0] = dropouts.size
        ms.set_rng_state(Tensor(generator))
        position, has_gauss, cached = gauss.tolist()
        np.random.set_state(("MT19937", words, int(position), int(has_gauss), cached))  # noqa: NPY002
        version, *python = python_words.tolist()
        random.setstate((version, tuple(python), python_gauss.tolist()[0] if python_gauss.size else None))


class Dropout(CheckCell):
    """`P.Dropout` with streams that can be put back: `x -> (output, mask)`.

    Mixed precision casts `x` as it casts what the stock operator reads, and nothing behind it: it would cast the share
    that is kept as well, which the kernel reads as float32.

    Args:
        stock: The operator it stands for.

    Raises:
        UnsupportedError: All streams are in use.
    """

    def __init__(self, stock: P.Dropout) -> None:
        super().__init__()
        first_states = _first_states()
        number = next((i for i in range(first_states.size) if i not in _living), -1)
        if number < 0:
            raise UnsupportedError(f"no dropout can be added: all {first_states.size} are in use.")
        _living[number] = self
        _forget(number)
        first_states[number] = _first_state(stock.Seed0, stock.Seed1)
        self.draw = _Draw(number)
        self.number = Tensor([number], ms.int32)
        self.keep = Tensor([stock.keep_prob], ms.float32)
        self.apply_mask = _ApplyMask(stock.keep_prob)

    def __call__(self, x):
        """For PyNative; the compiler takes `construct`."""
        return super().__call__(*as_operator_reads(x))

    def construct(self, x):
        mask = self.draw(F.stop_gradient(x), self.number, self.keep)
        return self.apply_mask(x, mask), mask


class _Draw(ops.Custom):
    """Draws a mask; a graph compiles the operator, PyNative calls `__call__`."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"{kernel.library_path()}:asd_dropout_mask",
            out_shape=lambda x, *_: x, out_dtype=lambda x, *_: x, func_type="aot",
        )  # fmt: skip
        self.add_prim_attr("side_effect_hidden", True)  # two draws are not the same draw
        self._pynative_number = Tensor([-1 - number], ms.int32)

    def __call__(self, x: Tensor, _number: Tensor, keep: Tensor) -> Tensor:
        return super().__call__(x, self._pynative_number, keep)


class _ApplyMask(CheckCell):
    """The product, in the order in which MindSpore's kernel multiplies."""

    def __init__(self, keep_prob: float) -> None:
        super().__init__()
        self.scale = float(np.float32(1) / np.float32(keep_prob))
        self.gradient = DropoutGrad(keep_prob)

    def construct(self, x, mask):
        if x.dtype == ms.float16:
            return mask * F.cast(F.cast(x, ms.float32) * self.scale, ms.float16)
        return mask * x * self.scale

    def bprop(self, x, mask, out, dout):
        return self.gradient(dout, mask), F.zeros_like(mask)


def _streams() -> np.ndarray:
    """The streams in use, as a view."""
    library = kernel.library
    if library is None:
        return np.zeros(0, kernel.STREAM_DTYPE)
    used = library.asd_used_streams()[0]
    memory = (ctypes.c_char * (used * kernel.STREAM_DTYPE.itemsize)).from_address(library.asd_streams())
    return np.frombuffer(memory, kernel.STREAM_DTYPE)


def _first_states() -> np.ndarray:
    library = kernel.library
    assert library is not None  # `control_dropouts` saw to it
    memory = (ctypes.c_uint64 * library.asd_stream_capacity()).from_address(library.asd_first_states())
    return np.ctypeslib.as_array(memory)


def _forget(number: int) -> None:
    """Closes the streams of a dropout that is no more."""
    streams = _streams()
    kept = streams[streams["dropout"] != number].copy()
    streams[: kept.size] = kept
    if kernel.library is not None:
        kernel.library.asd_used_streams()[0] = kept.size


def _first_state(seed0: int, seed1: int) -> int:
    """Of `std::minstd_rand0` in MindSpore's kernel, which scrambles its two seeds with one Philox4x32-10 block."""
    if seed0 == 0 and seed1 == 0:
        return 1 + secrets.randbelow(_MODULUS - 1)
    low = 2**32 - 1
    counter = [seed0 & low, seed0 >> 32, seed1 & low, seed1 >> 32]
    key = [0x3EC8F720, 0x02461E29]
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            (second >> 32) ^ counter[1] ^ key[0], second & low, (first >> 32) ^ counter[3] ^ key[1], first & low
        ]  # fmt: skip
        key = [(key[0] + 0x9E3779B9) & low, (key[1] + 0xBB67AE85) & low]
    return (counter[1] << 32 | counter[0]) % _MODULUS or 1


def _drawing_in_graphs(phases: Iterable[str]) -> set[str]:
    return set().union(*(_drawing_in(phase) for phase in phases))


def _drawing_in(phase: str) -> frozenset[str]:
    """Kept, for a large graph takes long to be written out, and what is compiled does not change."""
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
    """Whether any `Dropout` of a graph in the format MindIR drops anything."""
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


def _noting(name: str, call: Any) -> Any:
    @functools.wraps(call)
    def noted(*args: Any, **kwargs: Any) -> Any:
        if not _drops_nothing(args[0]):
            _drawn.add(name)
        return call(*args, **kwargs)

    return noted
