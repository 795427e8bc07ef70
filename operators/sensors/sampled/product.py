"""Matrix product that is checked while it is due: forward, and both products of its backward pass."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mindspore import Tensor, mint, ops
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.gate.site import Site
from asd.operators.sensors.sampled.score import rounding_of

Function = Callable[..., Any]
_KEPT = 3  # values kept of a call before its gradient comes: both operands, and the type of the result


class Form(NamedTuple):
    """Storage of a product's operands: whether each is transposed."""

    left: bool = False
    right: bool = False

    def fits(self, operands: tuple[Any, ...]) -> bool:
        """Returns whether these are plain, nonempty tensors of at least two dimensions, with equal batches or none."""
        a, b = operands[:2] if len(operands) >= 2 else (None, None)
        if not (isinstance(a, Tensor) and isinstance(b, Tensor)) or hasattr(a, "to_local") or hasattr(b, "to_local"):
            return False
        shapes = a.ndim > 1 and (b.ndim == 2 or (b.ndim > 2 and a.shape[:-2] == b.shape[:-2]))
        return shapes and a.size * b.size > 0 and bool(rounding_of(a.dtype) and rounding_of(b.dtype))


def form_of(operator: Any) -> Form | None:
    """Returns the form of a product that a layer has as an attribute; None for anything else."""
    if isinstance(operator, P.MatMul | P.BatchMatMul):
        return Form(bool(operator.transpose_a), bool(operator.transpose_b))
    if isinstance(operator, ops.Dense) or operator is ops.dense:
        return Form(right=True)
    return Form() if any(operator is each for each in (mint.matmul, mint.bmm, ops.matmul, ops.bmm)) else None


class CheckedProduct:
    """Replacement of a product during one call of its layer.

    It calls the operator on the same numbers; identities around it have hooks on their gradients.

    Args:
        multiply: The product's operator.
        form: Storage of its operands.
        sites: Sites of the product, and of the gradients of both operands.
        score: A `ProductScore`.
        note: Called with a site and a function that computes its score.
    """

    def __init__(self, multiply: Function, form: Form, sites: Sequence[Site], score: Function, note: Function) -> None:
        self._multiply, self._form, self._sites, self._score, self._note = multiply, form, sites, score, note

    def __call__(self, *operands: Any, **named: Any) -> Any:
        """Returns the product, and notes its checks."""
        if named or not self._form.fits(operands):
            return self._multiply(*operands, **named)
        seen: list[Any] = []
        # Each use has its own identity, so that the gradients of an operand are added up in their usual order.
        a = self._hooked(operands[0], self._sites[1], self._of_left, seen)
        b = self._hooked(operands[1], self._sites[2], self._of_right, seen)
        result = self._multiply(a, b, *operands[2:])
        self._note(self._sites[0], lambda: self._of_result(a, b, operands[2:], result, seen))

        def keep(gradient: Any) -> None:
            seen[3:] = [F.stop_gradient(gradient[0])] if len(seen) == _KEPT else [None]

        return ops.HookBackward(keep)(result)

    def _hooked(self, operand: Tensor, site: Site, check: Function, seen: list[Any]) -> Tensor:
        def look(gradient: Any) -> None:
            # In one backward pass the right operand's gradient comes first, and each comes once. Another order means a
            # second derivative, whose gradients are not those of one product.
            if len(seen) > _KEPT and seen[_KEPT] is not None:
                self._note(site, lambda: check(gradient[0], *seen))
            if site is self._sites[1]:
                seen[3:] = [None]

        hooked: Tensor = ops.HookBackward(look)(operand)
        return hooked

    def _of_result(self, a: Tensor, b: Tensor, bias: Sequence[Any], result: Tensor, seen: list[Any]) -> Tensor:
        """Returns the score of the result; keeps the operands as matrices or equal batches for the backward pass."""
        a, b = (_turned(F.stop_gradient(x), turn) for x, turn in zip((a, b), self._form, strict=True))
        many = (-1,) if b.ndim > 2 else ()
        a = a.reshape((*many, *a.shape[-2:]) if many else (-1, a.shape[-1]))
        seen[:] = a, b.reshape((*many, *b.shape[-2:])), result.dtype
        added = bias[0] if bias else None
        return self._score(*seen[:2], result.reshape((*a.shape[:-1], -1)), added, result.dtype)

    def _of_left(self, found: Tensor, a: Tensor, b: Tensor, computed_in: Any, out: Tensor) -> Tensor:
        found = _turned(found, self._form.left).reshape(a.shape)
        return self._score(out.reshape((*a.shape[:-1], -1)), _turned(b), found, None, computed_in)

    def _of_right(self, found: Tensor, a: Tensor, b: Tensor, computed_in: Any, out: Tensor) -> Tensor:
        found = _turned(found, self._form.right).reshape(b.shape)
        return self._score(_turned(a), out.reshape((*a.shape[:-1], -1)), found, None, computed_in)


def _turned(x: Tensor, turn: bool = True) -> Tensor:  # noqa: FBT001, FBT002 - of a form
    return ops.swapaxes(x, -1, -2) if turn else x
