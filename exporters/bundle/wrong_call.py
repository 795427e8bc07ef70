"""The call of an operator whose result was wrong, as a dump of it alone, which `asd recheck` and `asd run_ut` read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asd.dumps.record.debugger_config import DebuggerConfig
from asd.dumps.record.writer import DumpWriter
from asd.errors import StateError
from asd.rules.readings.reading import CHECKSUM, CONVOLUTION, LOOKUP, NORM, SOFTMAX, KeptTensor, OperatorCall
from asd.rundir.disk import write_whole

__all__ = ["write_call"]

_TYPES = {"float16": "Float16", "float32": "Float32", "bfloat16": "BFloat16", "int32": "Int32", "int64": "Int64"}
_NO_SHARE = -1e4
"""In place of the logarithm of a share that is 0."""


class _Told(NamedTuple):
    """How a dump tells the call.

    Attributes:
        label: Of the API.
        arguments: Tensors and plain values.
        attributes: What an operator was made with; None for a function.
        output: What the forward pass gave, where that is known.
        gradient: Of the output, where the call is one of the backward pass.
        gradients: Of the arguments, by their place, as far as they are known.
    """

    label: str
    arguments: tuple[Any, ...]
    attributes: dict[str, Any] | None = None
    output: KeptTensor | None = None
    gradient: KeptTensor | None = None
    gradients: tuple[KeptTensor | None, ...] = ()


def write_call(folder: Path, call: OperatorCall) -> None:
    """Writes the dump of `call` into `folder`, which must not be there yet.

    What a gradient does not depend on was not kept, and is zeros there; of a softmax whose gradient was wrong the
    input is the logarithm of its output.

    Raises:
        StateError: It can't be written.
    """
    told = _TELL[call.kind](call)
    problems: list[str] = []
    writer = DumpWriter(
        folder, DebuggerConfig(Path(), task="tensor", level="mix"), problem=problems.append, mode="graph"
    )

    def put(entry: str, part: str, values: tuple[Any, ...]) -> None:
        for place, value in enumerate(values):
            described = value
            if isinstance(value, KeptTensor):
                name = f"{entry}.{'output' if part == 'output' else 'input'}.{place}"
                described = writer.tensor(name, _numbers(value), _TYPES[value.dtype], entry)
            elif value is not None:
                described = _plain(value)
            writer.value(entry, part, [place], described)

    forward, backward = f"{told.label}.0.forward", f"{told.label}.0.backward"
    put(forward, "input_args", told.arguments)
    writer.value(forward, "input_kwargs", [], {})
    put(forward, "output", () if told.output is None else (told.output,))
    if told.attributes is not None:
        writer.value(forward, "attributes", [], told.attributes)
    if told.gradient is not None:
        put(backward, "input", (told.gradient,))
        put(backward, "output", told.gradients)
    writer.finish()
    if problems:
        raise StateError(problems[0])
    said = json.loads((folder / "dump.json").read_text(encoding="utf-8"))
    said["dump_data_dir"] = "dump_tensor_data"  # the evidence moves to its place when it is whole
    write_whole(folder / "dump.json", json.dumps(said, indent=1) + "\n")


def _numbers(kept: KeptTensor) -> np.ndarray[Any, Any]:
    """Its elements in its shape; those of bfloat16 widened to float32."""
    if kept.dtype == "bfloat16":
        bits = np.frombuffer(kept.data, np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32).reshape(kept.shape)
    return np.frombuffer(kept.data, kept.dtype).reshape(kept.shape)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return {"type": type(value).__name__, "value": value}


def _zeros(like: KeptTensor, shape: tuple[int, ...] | None = None) -> KeptTensor:
    shape = like.shape if shape is None else shape
    width = 2 if like.dtype in ("float16", "bfloat16") else 4
    return KeptTensor(shape, like.dtype, bytes(width * int(np.prod(shape))))


def _product(call: OperatorCall) -> _Told:
    a, b, c, settings = call.tensors
    kind = "MatMul" if len(a.shape) == len(b.shape) == 2 else "BatchMatMul"
    _, transpose_a, transpose_b = _numbers(settings).tolist()
    return _Told(
        f"Primitive.{kind.lower()}.{kind}", (a, b),
        {"transpose_a": bool(transpose_a), "transpose_b": bool(transpose_b)}, c,
    )  # fmt: skip


def _convolution(call: OperatorCall) -> _Told:
    a, b, result, settings = call.tensors
    _, part, *stride_dilation, top, left, same, groups = _numbers(settings).tolist()
    x, w, dy = ((a, b, None), (_zeros(a, result.shape), a, b), (a, _zeros(a, result.shape), b))[part]
    pads = (top, top, left, left)
    attributes = {
        "out_channel": w.shape[0], "kernel_size": list(w.shape[2:]), "mode": 1,
        "pad_mode": "same" if same else "pad" if any(pads) else "valid",
        "pad": 0 if same or not any(pads) else list(pads), "stride": stride_dilation[:2],
        "dilation": stride_dilation[2:], "group": groups,
    }  # fmt: skip
    gradients = ((), (result, None), (None, result))[part]
    return _Told("Primitive.conv2d.Conv2D", (x, w), attributes, None if part else result, dy, gradients)


def _lookup(call: OperatorCall) -> _Told:
    a, b, result, settings = call.tensors
    if _numbers(settings)[1] == 0:
        return _Told("Primitive.gather.Gather", (a, b, 0), {}, result)
    return _Told("Primitive.gather.Gather", (_zeros(result), a, 0), {}, None, b, (result, None, None))


def _softmax(call: OperatorCall) -> _Told:
    a, b, result, settings = call.tensors
    if _numbers(settings)[1] == 0:
        return _Told("Functional.softmax", (a, -1), None, result)
    with np.errstate(divide="ignore"):
        share = np.maximum(np.log(_numbers(a).astype(np.float32)), np.float32(_NO_SHARE))
    x = KeptTensor(a.shape, "float32", share.tobytes())
    if a.dtype == "float16":
        x = KeptTensor(a.shape, "float16", share.astype(np.float16).tobytes())
    return _Told("Functional.softmax", (x, -1), None, None, b, (result, None))


def _norm(call: OperatorCall) -> _Told:
    x, gamma = call.tensors[:2]
    settings, epsilon = (_numbers(each).tolist() for each in call.tensors[-2:])
    groups, centred, shifted = settings[-3:]
    third = call.tensors[2]  # beta, or dy
    by_name: dict[str, KeptTensor | None] = {}
    if call.part == "dx":
        by_name = {"x": call.tensors[3]}
    elif call.part:
        by_name = {"gamma": call.tensors[4], "beta": call.tensors[5] if shifted else None}
    beta = third if shifted and not call.part else _zeros(gamma)
    attributes = None
    if groups:
        label, given = "Functional.group_norm", {"x": x, "groups": groups, "gamma": gamma, "beta": beta}
    elif centred:
        label, given = "Primitive.layernorm.LayerNorm", {"x": x, "gamma": gamma, "beta": beta}
        axis = len(x.shape) - len(gamma.shape)
        attributes = {"begin_norm_axis": axis, "begin_params_axis": axis, "epsilon": epsilon[0]}
    else:
        label, given = "Functional.rms_norm", {"x": x, "gamma": gamma}
    arguments = (*given.values(), *(() if attributes else epsilon))
    if not call.part:
        return _Told(label, arguments, attributes, call.tensors[3])
    return _Told(label, arguments, attributes, None, third, tuple(by_name.get(name) for name in given))


_TELL: dict[str, Callable[[OperatorCall], _Told]] = {
    CHECKSUM: _product, CONVOLUTION: _convolution, LOOKUP: _lookup, SOFTMAX: _softmax, NORM: _norm
}  # fmt: skip
