"""MindSpore's backward graph in PyNative, as in 2.9 and 2.10."""

from __future__ import annotations

from typing import Any

from mindspore import Tensor

_LEAF = 1 << 62


def shows_its_graph() -> bool:
    """Whether this MindSpore shows its backward graph (2.9 and later do)."""
    return hasattr(Tensor, "_grad_node")


def node_of(tensor: Any) -> Any:
    """The node that made `tensor`; None without a gradient."""
    return tensor._grad_node if isinstance(tensor, Tensor) else None


def number_of(node: Any) -> int:
    """What tells a node from the others."""
    number: int = node._unique_id()
    return number


def has_one_result(node: Any) -> bool:
    """Whether a node makes one tensor; one of a function with a gradient of its own does not say."""
    return len(getattr(node, "_input_metadata", "several")) <= 1


def age_of(node: Any) -> int:
    """When the node was made: those of inputs before those of the call. A leaf counts as made before all."""
    number: int = node._sequence_nr()
    return -1 if number > _LEAF else number
