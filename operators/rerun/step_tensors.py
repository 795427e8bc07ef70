"""Tensors that enter and leave a step: copies them to the host as arrays, and back into their places."""

from collections.abc import Iterator
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor


def to_host(tensor: Tensor, *, copy: bool = True) -> np.ndarray:
    """Returns the values of `tensor` as an array; without `copy` perhaps its own memory."""
    if tensor.dtype == ms.bfloat16:  # NumPy lacks it; float32 holds each of its values
        tensor = tensor.astype(ms.float32)
    array: np.ndarray = tensor.asnumpy()
    return array.copy() if copy else array


def tensor_like(template: Tensor, array: np.ndarray) -> Tensor:
    """Returns a tensor of the type of `template` with the values of `array`, which `to_host` made."""
    return Tensor(array).astype(template.dtype) if template.dtype == ms.bfloat16 else Tensor(array, template.dtype)


def tensors_in(tree: Any) -> Iterator[Tensor]:
    """Yields the tensors of nested tuples, lists and dicts, in a fixed order."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for branch in tree:
            yield from tensors_in(branch)
    elif isinstance(tree, dict):
        for branch in tree.values():
            yield from tensors_in(branch)


def with_tensors(tree: Any, arrays: Iterator[np.ndarray]) -> Any:
    """Returns `tree` with the tensors' values from `arrays`."""
    if isinstance(tree, Tensor):
        return tensor_like(tree, next(arrays))
    if isinstance(tree, (tuple, list)):
        branches = [with_tensors(branch, arrays) for branch in tree]
        return type(tree)(*branches) if hasattr(tree, "_fields") else type(tree)(branches)
    if isinstance(tree, dict):
        return {key: with_tensors(branch, arrays) for key, branch in tree.items()}
    return tree


def numbers_of_first(outputs: Any) -> list[float]:
    """Returns the numbers of a step's first output, such as its loss; none where that is not a tensor."""
    while isinstance(outputs, (tuple, list)) and outputs:
        outputs = outputs[0]
    if not isinstance(outputs, Tensor):
        return []
    found: list[float] = to_host(outputs, copy=False).astype(np.float64).ravel().tolist()
    return found
