"""A stand-in for hyper-parallel, and for kernels that MindSpore's CPU back end lacks: a test bench, no product."""

import contextlib
import importlib.abc
import importlib.machinery
import sys
import types
from typing import ClassVar

from mindspore import Tensor, mint, nn, ops
from mindspore._c_expression import TensorPy, run_backward
from mindspore.graph.api import _pynative_executor

NAME = "hyper_parallel"


class DTensor(Tensor):
    """A tensor that this rank holds a part of: as a whole it can't be computed with."""

    def __init__(self, local):
        super().__init__(local)
        self.local = local

    def to_local(self):
        return self.local


class HSDPModule(nn.Cell):
    """A network whose parameters are divided."""


class SkipDTensorDispatch(contextlib.nullcontext):
    """Within it the real one computes with local parts."""


def let_tensors_go_backward():
    """Gives tensors `backward` and `grad`: what the backward pass of MindSpore 2.9 can do, without names for it."""
    _pynative_executor.set_grad_flag(True)
    TensorPy.grad = property(lambda tensor: tensor._grad, lambda tensor, value: setattr(tensor, "_grad", value))
    TensorPy.backward = _backward


def _backward(tensor, gradient=None):
    given = gradient if gradient is None or isinstance(gradient, tuple) else tuple(gradient)
    run_backward((tensor,), given, None, False, None, allow_unreachable=True, accumulate_grad=True)


class _Module(types.ModuleType):
    __path__ = ()
    real: ClassVar = {
        "DTensor": DTensor,
        "HSDPModule": HSDPModule,
        "SkipDTensorDispatch": SkipDTensorDispatch,
        "enable_mindspore_backward_compat": let_tensors_go_backward,
    }

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.real.setdefault(name, type(name, (), {"__init__": lambda self, *args, **more: None}))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name == NAME or name.startswith(f"{NAME}."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


def put_in_place():
    """Makes `import hyper_parallel` find the stand-in."""
    sys.meta_path.insert(0, _Finder())


def mend_cpu():
    """Computes on a CPU what has no kernel there, or silently does nothing: `mul_` and `add_` of a tensor."""
    mint.stack = ops.stack
    mint.addcmul = lambda a, b, c, *, value=1: a + value * b * c
    Tensor.mul_ = lambda self, factor: self.copy_(self * factor)
    Tensor.add_ = lambda self, other, *, alpha=1: self.copy_(self + alpha * other)
