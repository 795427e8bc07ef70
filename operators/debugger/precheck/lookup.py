"""From the name of a call to the function, in MindSpore's own namespaces alone."""

import inspect
import re
import types
from collections.abc import Callable
from typing import Any

from mindspore import Tensor, mint, ops
from mindspore.ops import auto_generate
from mindspore.ops import operations as P  # noqa: N812

from asd.dumps.formats.slots import is_random
from asd.operators.debugger.precheck.arguments import NotCheckable, from_json

_OF_NO_VALUE = re.compile(r"^(empty|empty_like|new_empty|Empty.*)$")
_NEVER = re.compile(
    r"print|dump|summary|custom|pyfunc|pyexecute|callback|kernel|register|hook|distributed|all_?gather|all_?reduce"
    r"|all_?to_?all|broadcast_object|reduce_?scatter|barrier|isend|irecv|^send|^recv|^receive|neighborexchange|scatter_object"
    r"|gather_object|process_group|new_group|get_rank|get_world|get_backend|_rank$|^(get_)?grad$|value_and_grad|^vmap|^jvp|^vjp|^jet"
    r"|^jac|derivative|linearize|constexpr|deepcopy|get_vm_impl|reshard|set_comm|move_to|add_flags|getnext|^assert|offload"
    r"|^load|^save|^morph|^queue|tofile|storage|pointer|^data_ptr|dlpack|^rpc"
    r"|^(dist|inner)comm|^push$|^pull$|to_?device|to_?host|^string|mapuniform|^switch",
    re.IGNORECASE,
)
TENSOR_METHODS = frozenset(
    """
    astype to type_as view view_as reshape_as half float double int long bool bfloat16 short byte repeat contiguous
    copy new_ones new_zeros new_full fill_diagonal masked_scatter ptp sum_to_size index_put add_ sub_ mul_ div_ exp_
    log_ sigmoid_ floor_ sign_ fill_ copy_ masked_fill_ scatter_ scatter_add_ index_add_ index_copy_ index_fill_
    index_put_ masked_scatter_ addmm_ remainder_ floor_divide_ __add__ __radd__ __iadd__ __sub__ __rsub__ __isub__
    __mul__ __rmul__ __imul__ __truediv__ __rtruediv__ __itruediv__ __floordiv__ __rfloordiv__ __mod__ __rmod__ __pow__
    __rpow__ __matmul__ __rmatmul__ __neg__ __abs__ __invert__ __and__ __rand__ __or__ __ror__ __xor__ __rxor__ __eq__
    __ne__ __lt__ __le__ __gt__ __ge__ __getitem__
    """.split()  # noqa: SIM905
)
_PRIVATE = re.compile(r"^_|^inplace_|^jit_|^constexpr$|_(ext|op|func)?$")
"""Names of functions of `mint` that it is made of."""
_NAMESPACES = {"Functional": (ops, ops.functional), "Mint": (mint,), "MintFunctional": (mint.nn.functional,)}


def names_of(namespace: Any) -> list[str]:
    """Returns the public functions of a namespace; `mint` has more than its `__all__` says."""
    names = list(namespace.__all__)
    if namespace in (mint, mint.nn.functional):
        names += [name for name in vars(namespace) if name not in names and not _PRIVATE.search(name)]
    return names


def find(label: str, attributes: dict[str, Any] | None) -> Callable[..., Any]:
    """Returns the function of a call.

    Args:
        label: Its name without the number: `Mint.mul`, `Primitive.matmul.MatMul`.
        attributes: Arguments that an operator was created with.
    """
    prefix, _, rest = label.partition(".")
    name = rest.rpartition(".")[2]
    _refuse(prefix, name)
    if prefix == "Primitive":
        return _primitive(name, attributes)
    if prefix == "Tensor":
        return _method(name)
    for namespace in _NAMESPACES.get(prefix, ()):
        found = getattr(namespace, name, None) if name in names_of(namespace) else None
        if isinstance(found, (types.FunctionType, types.BuiltinFunctionType)):
            return found
    raise NotCheckable(f"this MindSpore has no {prefix} API called {name}")


def _refuse(prefix: str, name: str) -> None:
    if prefix in ("Distributed", "MintDistributed"):
        raise NotCheckable("it needs the other ranks")
    if prefix == "Jit":
        raise NotCheckable("a compiled function is not in the dump")
    if is_random(name):
        raise NotCheckable("its result is random")
    if _OF_NO_VALUE.match(name):
        raise NotCheckable("its result has no defined value")
    if _NEVER.search(name) or (name.startswith("_") and name not in TENSOR_METHODS):
        raise NotCheckable("it does more than compute, or is not public")


def _method(name: str) -> Callable[..., Any]:
    public = name in TENSOR_METHODS or name in ops.__all__ or name in mint.__all__
    method = getattr(Tensor, name, None) if public else None
    if not callable(method):
        raise NotCheckable(f"this MindSpore has no method of Tensor called {name}")
    return method  # type: ignore[no-any-return]


def _primitive(name: str, attributes: dict[str, Any] | None) -> Callable[..., Any]:
    if attributes is None:
        raise NotCheckable("the dump does not have the arguments of the operator")
    made: Any = next((getattr(module, name) for module in (P, auto_generate) if hasattr(module, name)), None)
    if not (inspect.isclass(made) and issubclass(made, ops.Primitive)):
        raise NotCheckable(f"this MindSpore has no operator called {name}")
    given = {key: from_json(value) for key, value in attributes.items() if key != "name"}
    try:
        operator: Any = made(**given)
    except Exception as error:
        raise NotCheckable(f"the operator can't be made with {given!r:.100}: {error!s:.100}") from None
    return operator  # type: ignore[no-any-return]
