"""Checks one call of a dump: its output against a reference in float64, forward and backward."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import mindspore as ms
import numpy as np

from asd.dumps.formats.slots import Slot
from asd.dumps.precheck.calls import Call, leaves
from asd.dumps.precheck.rules import ABS_LIMIT, Judgement, epsilon_of, judge
from asd.dumps.precheck.tables import ERROR, PASS, SKIP, ApiResult, Detail
from asd.errors import StateError
from asd.operators.debugger.precheck.arguments import FLOATING, NotCheckable, mapped, to_tensor, wide_tensor
from asd.operators.debugger.precheck.execution import Place, call_backward, call_forward
from asd.operators.debugger.precheck.inputs import DTYPES, Inputs, Value, to_bfloat16
from asd.operators.debugger.precheck.lookup import find
from asd.operators.debugger.precheck.references import CONVERSIONS, PRIMITIVES, REFERENCES

_RIGHT_NOW = "re-run here it is right"
_PROBES = 4
_INEXACT = (*FLOATING, "Complex64", "Complex128")
Values = dict[Place, Value]


@dataclass
class _CheckJob:
    """A call with its inputs."""

    call: Call
    function: Callable[..., Any]
    args: Any
    kwargs: Any
    gradients: Values = field(default_factory=dict)

    def forward(self, function: Callable[..., Any], convert: Callable[[Any], Any]) -> Values:
        return call_forward(function, self.args, self.kwargs, convert)

    def backward(self, function: Callable[..., Any], convert: Callable[[Any], Any]) -> Values:
        return call_backward(function, self.args, self.kwargs, convert, self.gradients)


class _Reference(NamedTuple):
    """The right values, and the function that computed them: None where nothing is computed."""

    values: Values
    function: Callable[..., Any] | None


class _Outputs(NamedTuple):
    """One direction of a call: the values in its dump, and those of its re-run."""

    job: _CheckJob
    entry: str
    run: Any
    places: list[Place]
    dumped: Values
    again: Values


class Check:
    """Checker of calls, in PyNative.

    Args:
        path: Path of the dump.json.
        real: Whether the dump holds tensors; otherwise inputs are made from statistics.
        rule: `rounding`, `seed` or `strict`.
        abs_limit: Largest absolute error of the rules `rounding` and `seed`.
    """

    def __init__(self, path: Path, *, real: bool, rule: str = "rounding", abs_limit: float = ABS_LIMIT) -> None:
        ms.set_context(mode=ms.PYNATIVE_MODE)
        self._inputs = Inputs(path, real=real)
        self._rule, self._abs_limit = rule, abs_limit

    def check(self, call: Call) -> ApiResult:
        """Checks one call; the result holds every problem with it."""
        random = self._inputs.generator(call.name)

        def made(described: Any) -> Any:
            return self._inputs.value(described, random) if isinstance(described, Slot) else described

        if call.problem:
            return ApiResult(call.name, SKIP, SKIP if call.backward else "", call.problem)
        try:
            job = _CheckJob(call, find(call.label, call.attributes), mapped(call.args, made), mapped(call.kwargs, made))
            forward, messages = self._direction(job, call.forward, call.outputs, _CheckJob.forward)
        except (NotCheckable, StateError) as error:
            return ApiResult(call.name, SKIP, SKIP if call.backward else "", str(error))
        backward: list[Detail] = []
        backward_status = ""
        if call.backward:
            try:
                job.gradients = {place: made(each) for place, each in leaves(call.gradients) if isinstance(each, Slot)}
                backward, more = self._direction(job, call.backward, call.input_gradients, _CheckJob.backward)
                messages += more
                backward_status = _status(backward)
            except (NotCheckable, StateError) as error:
                backward_status = SKIP
                messages.append(f"backward: {error}")
        details = [*forward, *backward]
        messages += [f"{each.name}: {each.message}" for each in details if each.status == ERROR]
        return ApiResult(call.name, _status(forward), backward_status, "; ".join(dict.fromkeys(messages)), details)

    def _direction(self, job: _CheckJob, entry: str, described: Any, run: Any) -> tuple[list[Detail], list[str]]:
        """Checks one direction; returns its rows and messages."""
        if run is _CheckJob.backward and not job.gradients:
            raise NotCheckable("the dump has no gradient of an output")
        messages = []
        dumped = self._dumped(described, job) if self._inputs.real else {}
        again: Values = {}
        try:
            again = run(job, job.function, to_tensor)
        except NotCheckable as error:
            if not dumped:
                raise NotCheckable(f"it can't run here: {error}") from None
            messages.append(f"not re-run, only the dumped output is checked: {error}")
        places = [place for place, each in leaves(described) if isinstance(each, Slot)]
        places += [place for place in dumped if place not in places]
        places = [place for place in places or again if place in dumped or place in again]
        if not places:
            raise NotCheckable("it gives no tensor that could be compared")
        return self._rows(_Outputs(job, entry, run, places, dumped, again)), messages

    def _rows(self, outputs: _Outputs) -> list[Detail]:
        job, run = outputs.job, outputs.run
        reference = self._reference(job, {**outputs.again, **outputs.dumped}, outputs.places, run)

        def rows(*, final: bool) -> list[Detail]:
            noisy = final and self._rule != "seed" and reference.function is not None
            noise = _noise(job, reference.function, reference.values, run) if noisy else {}  # type: ignore[arg-type]
            return [
                self._detail(
                    outputs.entry,
                    place,
                    (outputs.dumped.get(place), outputs.again.get(place)),
                    reference.values[place],
                    noise.get(place),
                )
                for place in outputs.places
            ]

        # The noise of rounded inputs is far slower to compute than all else, so only where it decides.
        found = rows(final=False) if self._rule == "rounding" else []
        return found if found and _status(found) == PASS else rows(final=True)

    def _dumped(self, described: Any, job: _CheckJob) -> Values:
        found: Values = {}
        for place, each in leaves(described):
            if isinstance(each, Slot) and each.data_name is not None:
                found[place] = self._inputs.value(each, self._inputs.generator(job.call.name))
        return found

    def _reference(self, job: _CheckJob, tested: Values, places: list[Place], run: Any) -> _Reference:
        if job.call.label.rpartition(".")[2] in CONVERSIONS:
            source = job.gradients if run is _CheckJob.backward else dict(leaves(job.args))
            first = next((each for each in source.values() if isinstance(each, Value)), None)
            if first is None:
                raise NotCheckable("it has no tensor to convert")
            return _Reference({place: _converted(first, tested[place].dtype) for place in places}, None)
        own = _own_reference(job.call)
        try:
            function = job.function
            reference = run(job, function, wide_tensor)
            _make_sure_it_is_wide(reference, tested, places)
        except NotCheckable as error:
            if own is None:
                raise NotCheckable(f"there is no reference in float64: {error}") from None
            function = own
            try:
                reference = run(job, function, wide_tensor)
                _make_sure_it_is_wide(reference, tested, places)
            except NotCheckable as second:
                raise NotCheckable(f"there is no reference in float64: {second}") from None
        return _Reference(reference, function)

    def _detail(
        self, entry: str, place: Place, given: tuple[Value | None, Value | None], reference: Value, noise: Value | None
    ) -> Detail:
        dumped, again = given
        tested = dumped if dumped is not None else again
        assert tested is not None
        judgement = self._judge(tested, reference, noise)
        message = judgement.message
        if dumped is not None and again is not None:
            second = self._judge(again, reference, noise)
            if judgement.passed and not second.passed:
                judgement, tested = second, again
                message = f"the dumped output is right, but its rerun here is not: {second.message}"
            elif second.passed and not judgement.passed:
                message += f"; {_RIGHT_NOW}"
        if tested.dtype == "Float64" and not message:
            message = "the reference has the same type"
        name = f"{entry}.{'.'.join(map(str, ('output', *place)))}"
        return Detail(name, reference.dtype, tested.dtype, tuple(tested.array.shape), judgement, message)

    def _judge(self, tested: Value, reference: Value, noise: Value | None) -> Judgement:
        return judge(
            tested.array,
            reference.array,
            tested.dtype,
            rule=self._rule,
            abs_limit=self._abs_limit,
            noise=None if noise is None else noise.array,
        )


def _own_reference(call: Call) -> Callable[..., Any] | None:
    prefix, _, rest = call.label.partition(".")
    factory = PRIMITIVES.get(rest.rpartition(".")[2]) if prefix == "Primitive" else None
    if factory is None:
        return REFERENCES.get(call.label)
    try:
        return factory(call.attributes or {})
    except ValueError:
        return None


def _make_sure_it_is_wide(reference: Values, tested: Values, places: list[Place]) -> None:
    for place in places:
        if place not in reference:
            raise NotCheckable("it gives other outputs in float64")
        found = reference[place].dtype
        if tested[place].dtype in _INEXACT and found not in ("Float64", "Complex128"):
            raise NotCheckable(f"MindSpore computes it in {found} even then")


def _converted(value: Value, dtype: str) -> Value:
    with np.errstate(all="ignore"):
        array = value.array.astype(DTYPES[dtype])
    return Value(to_bfloat16(array) if dtype == "BFloat16" else array, dtype)


def _noise(job: _CheckJob, function: Callable[..., Any], reference: Values, run: Any) -> Values:
    """Returns the root mean square change of each element when inputs are randomly rounded by half a unit.

    It is at least the mean of all elements of the tensor: in a few trials one element may hardly change by chance.
    """
    random = np.random.default_rng(42)
    sums = {place: np.zeros(value.array.shape) for place, value in reference.items() if value.dtype == "Float64"}

    def rounded(value: Any) -> Any:
        if not isinstance(value, Value) or value.dtype not in FLOATING:
            return wide_tensor(value)
        factor = 1.0 + epsilon_of(value.dtype) * (random.random(value.array.shape) - 0.5)
        return wide_tensor(Value(value.array.astype(np.float64) * factor, "Float64"))

    for _ in range(_PROBES):
        try:
            probe = run(job, function, rounded)
        except NotCheckable:
            return {}
        with np.errstate(all="ignore"):
            for place, total in sums.items():
                total += (probe[place].array - reference[place].array) ** 2
    with np.errstate(all="ignore"):
        return {
            place: Value(np.sqrt(np.maximum(total, total[np.isfinite(total)].mean()) / _PROBES), "Float64")
            for place, total in sums.items()
            if np.isfinite(total).any()
        }


def _status(details: list[Detail]) -> str:
    return ERROR if any(each.status == ERROR for each in details) else PASS
