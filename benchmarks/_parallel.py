"""Calls a function in fresh processes, one a core, with a progress bar."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import Any

__all__ = ["run_parallel"]


def prepare() -> None:
    """Sets a worker process up, before MindSpore is imported: one thread, no log."""
    os.environ.update({"GLOG_v": "3", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
    # With AVX-512, oneDNN has only its reference convolution for plain layouts, which is fifty times slower.
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
    # Kernels of a few microseconds are launched where they are prepared: handing them over takes longer than they do.
    os.environ.setdefault("MS_DEV_RUNTIME_CONF", "pipeline:False,inline:True")


@contextmanager
def _without_interrupt() -> Iterator[None]:
    """Processes begun meanwhile leave Ctrl-C, which a terminal sends to all of them, to the one that began them."""
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def run_parallel(
    function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], workers: int, label: str
) -> list[Any]:
    """Calls a function for each tuple of arguments in fresh processes, with a progress bar; results in that order."""
    results: dict[int, Any] = {}
    began = time.monotonic()
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=prepare) as pool:
        with _without_interrupt():
            futures = {pool.submit(function, *each): number for number, each in enumerate(arguments)}
        try:
            for future in as_completed(futures):
                results[futures[future]] = future.result()
                _show(label, len(results), len(arguments), time.monotonic() - began)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in active_children():  # results are written whole or not at all
                process.terminate()
            raise
    return [results[number] for number in range(len(arguments))]


def _show(label: str, done: int, total: int, seconds: float) -> None:
    left = seconds / done * (total - done)
    text = f"{label} {done}/{total}, {seconds / 60:.1f} min, about {left / 60:.1f} min left"
    if sys.stderr.isatty():
        bar = "#" * (30 * done // total)
        print(f"\r\x1b[K[{bar:.<30}] {text}", end="\n" if done == total else "", file=sys.stderr, flush=True)
    elif done == total or done % 10 == 0:
        print(text, file=sys.stderr, flush=True)
