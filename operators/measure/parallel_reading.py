"""Reads many Parameters in a few threads: one core alone can't take in what the memory gives."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from mindspore import Parameter

from asd.operators.measure.step_tensors import to_host

__all__ = ["read_each"]

_MOST_THREADS = 4
_FEW_BYTES = 1 << 22
"""Up to here a second thread takes longer to wake than to help."""
_BATCH = 1 << 28
"""Bytes of Parameters that are read at a time, about: a bfloat16 one is copied, and all copies would take much room."""
Answer = TypeVar("Answer")


def read_each(read: Callable[[np.ndarray], Answer], parameters: Iterable[Parameter]) -> list[Answer]:
    """`read` of the values of each Parameter, in their order.

    Args:
        read: Called in several threads at once; to gain from them it releases Python's lock, as ctypes and NumPy do.
        parameters: Any shapes and types.
    """
    answers: list[Answer] = []
    for batch in _batches(parameters):
        answers += _read_arrays(read, [to_host(parameter, copy=False) for parameter in batch])
    return answers


def _batches(parameters: Iterable[Parameter]) -> Iterator[list[Parameter]]:
    batch, size = [], 0
    for parameter in parameters:
        batch.append(parameter)
        size += parameter.nbytes
        if size > _BATCH:
            yield batch
            batch, size = [], 0
    yield batch


def _read_arrays(read: Callable[[np.ndarray], Answer], arrays: Sequence[np.ndarray]) -> list[Answer]:
    left = iter(range(len(arrays)))
    answers: dict[int, Answer] = {}

    def work() -> None:
        for i in left:
            answers[i] = read(arrays[i])

    helpers = _threads() - 1 if len(arrays) > 1 and sum(array.nbytes for array in arrays) > _FEW_BYTES else 0
    helping = [_pool().submit(work) for _ in range(helpers)]
    work()
    for each in helping:
        each.result()
    return [answers[i] for i in range(len(arrays))]


@functools.cache
def _threads() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(_MOST_THREADS, cores)


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="asd-read")
