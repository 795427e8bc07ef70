"""The call of an operator that a training kept because its result was wrong, computed again without the training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asd.dumps.precheck.calls import TensorArgument, leaves, read_calls
from asd.dumps.precheck.inputs import Value
from asd.dumps.precheck.rules import judge
from asd.dumps.precheck.tables import Detail
from asd.errors import StateError, UnsupportedError
from asd.operators.precheck.arguments import NotCheckable, to_tensor
from asd.operators.precheck.check import TolerantCheck, _CheckJob, _noise
from asd.operators.precheck.execution import Place
from asd.rundir.names import OPERATOR

__all__ = ["Answer", "KeptCall", "kept_calls"]


class Answer(NamedTuple):
    """What float64 says of a result.

    Attributes:
        right: Whether rounding explains all that differs; None where there is no answer.
        words: Why not, or why there is none; empty when it is right.
        expected: The answer in float64.
    """

    right: bool | None
    words: str
    expected: np.ndarray[Any, Any] | None = None


class KeptCall:
    """One call, on the device that is set.

    Args:
        dump: Its dump.json.

    Attributes:
        name: Of the call, as its dump has it, such as `Primitive.matmul.MatMul.0.backward`.
        kept: The result that was wrong, as the training had it; bfloat16 as float32.

    Raises:
        StateError: The file is no dump of such a call.
        UnsupportedError: The call can't be made here.
    """

    def __init__(self, dump: Path) -> None:
        _, calls = read_calls(dump)
        if len(calls) != 1:
            raise StateError(f"{dump} has {len(calls)} calls, and one is needed.")
        self._held = _Held(dump)
        problem = self._held.check(calls[0]).message
        if self._held.job is None:
            raise UnsupportedError(f"{calls[0].name} of {dump} can't be made again: {problem or 'it has no result'}.")
        self.name, self.kept = self._held.entry, self._held.kept.array

    def compute(self) -> np.ndarray[Any, Any]:
        """The result, computed once more.

        Raises:
            UnsupportedError: The device can't do it.
        """
        return self._computed().array

    def answer(self, result: np.ndarray[Any, Any]) -> Answer:
        """What float64 says of `result`."""
        held, kept = self._held, self._held.kept
        assert held.job is not None
        try:
            reference = held._reference(held.job, {held.place: kept}, [held.place], held.run)
            if reference.function is None:
                return Answer(None, "the call computes nothing")
            noise = _noise(held.job, reference.function, reference.values, held.run).get(held.place)
        except NotCheckable as error:
            return Answer(None, str(error))
        expected = reference.values[held.place].array
        found = judge(
            result, expected, kept.dtype, rule="strict",
            noise=None if noise is None else noise.array,
        )  # fmt: skip
        return Answer(found.passed, "" if found.passed else found.message, expected)

    def _computed(self) -> Value:
        held = self._held
        try:
            return held.run(held.job, held.job.function, to_tensor)[held.place]  # type: ignore[union-attr, no-any-return]
        except NotCheckable as error:
            raise UnsupportedError(f"{held.entry} can't be computed here: {error}.") from None


def kept_calls(path: Path) -> list[Path]:
    """The dumps of all such calls: of a bundle of evidence, of a run's folder, or of one that has several runs.

    Links are not followed.
    """
    if path.is_file():
        return [path]
    found = (each for each in path.rglob(f"{OPERATOR}/dump.json") if not each.parent.is_symlink())
    own = path / "dump.json"
    return [own] if own.is_file() else sorted(found)


class _Held(TolerantCheck):
    """Takes a call apart, and keeps what computes it.

    Attributes:
        job: The call with its inputs; None where it can't be made.
        entry: Which of its entries has the result.
        place: Of the result in it.
        run: Computes the entry.
        kept: The result that the dump has.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, real=True)
        self.job: _CheckJob | None = None
        self.entry = ""
        self.place: Place = ()
        self.run: Callable[..., Any]
        self.kept: Value

    def _direction(self, job: _CheckJob, entry: str, described: Any, run: Any) -> tuple[list[Detail], list[str]]:
        told = [place for place, each in leaves(described) if isinstance(each, TensorArgument)]
        if told and self.job is None:
            kept = self._dumped(described, job)
            if told[0] in kept:
                self.job, self.entry, self.place, self.run, self.kept = job, entry, told[0], run, kept[told[0]]
        return [], []
