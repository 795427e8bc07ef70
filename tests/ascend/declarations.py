"""What MindSpore itself says about where an operator runs."""

import re

import mindspore as ms
from mindspore import ops

_PLATFORMS = re.compile(r"Supported Platforms:\s*\n\s*(.*?)\n\s*(?:\n|$)", re.DOTALL)
_SAME_AS = re.compile(r"(?:^\s*|[`~])(?:mindspore\.)?(ops|Tensor|mint)\.(\w+)[(`]", re.MULTILINE)
_CALLED_BY = dict.fromkeys(("LinalgVectorNorm", "LpNormV2"), ms.mint.linalg.vector_norm)
"""Operators that MindSpore declares with the function that calls them."""
# What the compiler makes of Python's own operators between a tensor and a number; MindSpore declares nothing about it.
_OF_THE_COMPILER = re.compile(r"Scalar$|^(TensorMove|Muls|Adds|Subs)$")
"""Such as `Muls`, a product with a number, and `LessScalar`, which it computes itself."""


def why_not_for_ascend(name: str) -> str | None:
    """Why operator `name` is not for Ascend, or None where MindSpore declares that it is."""
    if _OF_THE_COMPILER.search(name):
        return None
    operations = getattr(ops.operations, name, None) or getattr(ops.auto_generate, name, None)
    described = _CALLED_BY.get(name) or operations
    if described is None:
        return "MindSpore has no such operator"
    text = described.__doc__ or ""
    for _ in range(3):  # one that is generated refers to a function, which may refer to a method
        if found := _PLATFORMS.search(text):
            return None if "Ascend" in found[1] else f"it is for {found[1]}"
        referred = _SAME_AS.search(text)
        if referred is None:
            break
        holder = {"ops": ops, "Tensor": ms.Tensor, "mint": ms.mint}[referred[1]]
        text = getattr(getattr(holder, referred[2], None), "__doc__", None) or ""
    return "MindSpore says nothing about where it runs"
