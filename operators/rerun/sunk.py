"""Sunk data: a graph that fetches its batch from the device's queue returns it too, so that the step can be re-run."""

import logging
import time
from collections.abc import Callable
from types import MethodType
from typing import Any

import mindspore as ms
from mindspore import nn

from asd.operators.private.class_swap import put_on
from asd.operators.private.layout import shares_batches
from asd.operators.rerun.step_tensors import tensors_in

_LOG = logging.getLogger("asd")
_SHARED = "no sunk batch is kept in a pipeline, with dataset_broadcast_opt_level or full_batch=False: do not sink data"
_SEVERAL = (
    "with sunk data one call makes {} steps, whose batches are not kept: updates beyond first-level limits are refused "
    "and lost, those beyond second-level limits are applied with a warning. Train with sink_size=1"
)


def why_not_kept(steps: int) -> str:
    """Returns why no batch is kept of a training with sunk data whose calls make `steps` steps; empty if it is."""
    if steps > 1:
        return _SEVERAL.format(steps)
    return _SHARED if ms.get_context("mode") == ms.GRAPH_MODE and shares_batches() else ""


def keep_batches(cell: nn.Cell, trains: Any, make: Callable[[MethodType], Any]) -> str:
    """Has the graph of `cell` return its batch too, and makes every call by `make`; returns why not, if so.

    A compiled graph does not change, so this stays when the training ends; without `asd_make` calls are passed on.
    """
    if cell.network is not trains:
        return "data are sunk, and transformed on the device (offload)"
    if not hasattr(cell, "asd_make"):
        if cell.compile_cache:
            return "the graph that fetches the batches was compiled before: call Model.train without Model.build"
        put_on(cell, _keeping(type(cell)))
    cell.asd_make = make
    cell.network.phase = cell.phase  # of the graph that re-runs a step
    return ""


def _keeping(base: type) -> type:
    class Keeping(base):
        def __call__(self, *args, **kwargs):
            fetch = super().__call__
            return fetch()[0] if self.asd_make is None else self.asd_make(fetch)

        def construct(self):
            batch = self.get_next()
            return self.network(*batch), batch

    return Keeping


def compile_for(cell: nn.Cell, batch: tuple[Any, ...]) -> str:
    """Compiles `cell` for such a batch; returns its time and memory in words. All graphs share a pool for the rest."""
    began, before = time.perf_counter(), ms.runtime.memory_reserved()
    cell.compile(*batch)
    seconds, more = time.perf_counter() - began, max(0, ms.runtime.memory_reserved() - before) / 2**20
    kept = sum(tensor.nbytes for tensor in tensors_in(batch)) / 2**20
    cost = f"compiled in {seconds:.1f} s with {more:.1f} MiB of memory; the kept batch has {kept:.3g} MiB"
    _LOG.info("the graph that re-runs a step with sunk data was %s", cost)
    return cost
