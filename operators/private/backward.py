"""MindSpore's backward graph in PyNative, as in 2.9 and 2.10."""

from typing import Any

from mindspore import Tensor

_LEAF = 1 << 62


def shows_its_graph() -> bool:
    """Returns whether this MindSpore exposes its backward graph (2.9 and later do)."""
    return hasattr(Tensor, "_grad_node")


def node_of(tensor: Any) -> Any:
    """Returns the node that made `tensor`; None without a gradient."""
    return tensor._grad_node if isinstance(tensor, Tensor) else None


def number_of(node: Any) -> int:
    """Returns the unique number of a node."""
    return int(node._unique_id())


def has_one_result(node: Any) -> bool:
    """Returns whether a node makes one tensor; False where its function has its own gradient and hides the number."""
    return len(getattr(node, "_input_metadata", "several")) <= 1


def age_of(node: Any) -> int:
    """Returns the sequence number of a node: inputs have lower numbers than the calls that use them, leaves -1."""
    number: int = node._sequence_nr()
    return -1 if number > _LEAF else number
