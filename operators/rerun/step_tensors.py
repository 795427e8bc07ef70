"""Tensors that enter and leave a step: copies them to the host as arrays, and back into their places."""

from collections.abc import Iterator
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor

from asd.errors import UnsupportedError

_PLAIN = (int, float, complex, str, bytes, np.generic)


def to_host(tensor: Tensor, *, copy: bool = True) -> np.ndarray:
    """Returns the values of `tensor` as an array; without `copy` perhaps its own memory."""
    if tensor.dtype == ms.bfloat16:  # NumPy lacks it; float32 holds each of its values
        tensor = tensor.astype(ms.float32)
    array: np.ndarray = tensor.asnumpy()
    return array.copy() if copy else array


def tensor_like(template: Tensor, array: np.ndarray) -> Tensor:
    """Returns a tensor of the type of `template` with the values of `array`, which `to_host` made."""
    return Tensor(array).astype(template.dtype) if template.dtype == ms.bfloat16 else Tensor(array, template.dtype)


def tensors_in(tree: Any, kinds: Any = Tensor) -> Iterator[Any]:
    """Yields the tensors of nested tuples, lists and dicts, or what else is of one of `kinds`, in a fixed order."""
    if isinstance(tree, (tuple, list, dict)):
        for branch in tree.values() if isinstance(tree, dict) else tree:
            yield from tensors_in(branch, kinds)
    elif isinstance(tree, kinds):
        yield tree


def form_of(tree: Any) -> str:
    """Returns all but the values of tensors and arrays as text; raises UnsupportedError where that is not enough."""
    if isinstance(tree, (tuple, list, dict)):
        return str([*map(form_of, tree.items() if isinstance(tree, dict) else tree)])
    is_array = type(tree) is np.ndarray and tree.dtype.isbuiltin == 1 and tree.dtype.kind in "biufc"
    if is_array or isinstance(tree, Tensor):
        return str(tree.dtype)
    if not (tree is None or isinstance(tree, _PLAIN) or callable(tree)):
        raise UnsupportedError(f"a {type(tree).__name__} cannot be sent to another rank.")
    return type(tree).__name__ if callable(tree) else repr(tree)


def with_tensors(tree: Any, arrays: Iterator[np.ndarray]) -> Any:
    """Returns `tree` with the values of tensors and arrays from `arrays`."""
    if isinstance(tree, (Tensor, np.ndarray)):
        return tensor_like(tree, next(arrays)) if isinstance(tree, Tensor) else next(arrays)
    if isinstance(tree, (tuple, list)):
        branches = [with_tensors(branch, arrays) for branch in tree]
        return type(tree)(*branches) if hasattr(tree, "_fields") else type(tree)(branches)
    return {key: with_tensors(branch, arrays) for key, branch in tree.items()} if isinstance(tree, dict) else tree


def numbers_of_first(outputs: Any) -> list[float]:
    """Returns the numbers of a step's first output, such as its loss; none where that is not a tensor."""
    while isinstance(outputs, (tuple, list)) and outputs:
        outputs = outputs[0]
    if not isinstance(outputs, Tensor):
        return []
    found: list[float] = to_host(outputs, copy=False).astype(np.float64).ravel().tolist()
    return found
