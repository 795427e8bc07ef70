"""Hooks on functions of `mindspore.ops` and `mindspore.mint` and on methods of Tensor, in PyNative."""

import functools
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mindspore import Tensor, mint, nn, ops

from asd.operators.debugger.hooks.session import Label, eager_session
from asd.operators.debugger.precheck.lookup import TENSOR_METHODS, names_of


def _words(text: str) -> list[str]:
    """Returns the words of a text."""
    return text.split()


_NO_OPERATORS = frozenset(
    _words("""
    arg_dtype_cast arg_handler gen_extend_func op_info_register custom_info_register constexpr reshard
    prim_attr_register prim_arg_register add_flags kernel ms_kernel deepcopy grad value_and_grad get_grad vmap jvp
    vjp jet derivative jacfwd jacrev linearize cond while_loop scan for_i_in_range foreach switch_layer map_
    partial shape_ dtype is_tensor is_complex is_floating_point is_nonzero
    stop_gradient depend print_ tensor_dump make_row_tensor make_sparse_tensor make_coo_tensor make_csr_tensor
    coo_to_csr csr_to_coo core get_vm_impl_fn primexpr isinstance_ is_ is_not in_dict not_in_dict
    mixed_precision_cast env_get custom eps morph move_to hook_backward typeof no_grad enable_grad
    set_grad_enabled is_grad_enabled manual_seed initial_seed get_rng_state set_rng_state seed get_rank
    get_world_size get_backend get_group_rank get_global_rank get_process_group_ranks is_available is_initialized
    init_process_group destroy_process_group new_group barrier requires_grad_ register_hook remove_hook
""")
)
_OF_SHAPES = frozenset({"shape", "dyn_shape", "rank", "size", "numel", "nelement"})  # recorded as functions alone
_CALLED = {"astype": "to"}
"""Methods that are recorded as the method of MindSpore that they call, which is what the vendor's tool sees."""
_METHODS = {*TENSOR_METHODS, "__ifloordiv__", "__imod__", "__setitem__", "nelement", "new_empty"}
"""Methods that are recorded beside the functions of their names."""
_COLLECTIVES = _words("""
    all_reduce all_gather all_gather_into_tensor all_to_all all_to_all_single broadcast reduce reduce_scatter
    reduce_scatter_tensor scatter_tensor scatter gather gather_into_tensor send recv isend irecv P2POp
    batch_isend_irecv
""")
_OURS = re.compile(r"asd\.operators\.(?!checks\.|drill\.)")
"""Modules whose calls are no part of the training they check."""


def _functions(module: Any, names: Iterable[str]) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in names:
        value: Any = getattr(module, name, None)
        plain = isinstance(value, (types.FunctionType, types.BuiltinFunctionType))
        if plain and not name.startswith("_") and name not in _NO_OPERATORS:
            yield name, value


class ApiHooks:
    """The hooks, put in place and taken away as often as need be.

    Args:
        nets: Functions that the modules of these networks imported by name are hooked where they are.
    """

    def __init__(self, nets: Sequence[nn.Cell]) -> None:
        self._replaced: list[tuple[Any, str, Any, Any]] = []  # where, name, what was there, the hook
        self._in_place = False
        by_original: dict[int, Any] = {}
        communication = sys.modules.get("mindspore.communication.comm_func")
        for prefix, module, names in (
            ("Functional", ops, ops.__all__),
            ("Functional", ops.functional, ops.functional.__all__),
            ("Mint", mint, names_of(mint)),
            ("MintFunctional", mint.nn.functional, names_of(mint.nn.functional)),
            ("MintDistributed", mint.distributed, _COLLECTIVES),
            ("Distributed", communication, _COLLECTIVES),
        ):
            for name, original in _functions(module, names):
                hook = _hooked(f"{prefix}.{name}", original)
                by_original.setdefault(id(original), hook)
                self._replaced.append((module, name, original, hook))
        known = {name for name, _ in [*_functions(ops, ops.__all__), *_functions(mint, mint.__all__)]}
        for name in sorted((known & set(dir(Tensor))) - _OF_SHAPES | _METHODS):
            method = getattr(Tensor, name, None)
            if callable(method):
                own = Tensor.__dict__.get(name)
                text = f"Tensor.{_CALLED.get(name, name)}"
                self._replaced.append((Tensor, name, own, _hooked(text, method)))
        for module in _modules_of(nets):
            for name, value in list(vars(module).items()):
                if id(value) in by_original and isinstance(value, (types.FunctionType, types.BuiltinFunctionType)):
                    self._replaced.append((module, name, value, by_original[id(value)]))

    def put(self) -> None:
        """Puts the hooks in place."""
        if not self._in_place:
            self._in_place = True
            for where, name, _, hook in self._replaced:
                setattr(where, name, hook)

    def take_away(self) -> None:
        """Puts everything back as it was."""
        if self._in_place:
            self._in_place = False
            for where, name, original, _ in self._replaced:
                if original is None:
                    delattr(where, name)
                else:
                    setattr(where, name, original)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Removes the hooks for a while."""
        was = self._in_place
        self.take_away()
        try:
            yield
        finally:
            if was:
                self.put()


def _modules_of(nets: Sequence[nn.Cell]) -> list[types.ModuleType]:
    """Modules whose code the networks run."""
    names = {base.__module__ for net in nets for _, cell in net.cells_and_names() for base in type(cell).__mro__}
    inner = ("mindspore.ops", "mindspore.common", "mindspore.nn.cell", "builtins", "asd.")
    return [sys.modules[name] for name in sorted(names) if name in sys.modules and not name.startswith(inner)]


def _hooked(text: str, original: Callable[..., Any]) -> Callable[..., Any]:
    label = Label(text, module=False)

    @functools.wraps(original)
    def hook(*args: Any, **kwargs: Any) -> Any:
        session = eager_session()
        if session is None or _OURS.match(_caller()):
            return original(*args, **kwargs)
        return session.call(label, original, args, kwargs)

    return hook


def _caller() -> str:
    """Returns the module that calls a hook; methods of Tensor that delegate are skipped."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("mindspore.common."):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))
