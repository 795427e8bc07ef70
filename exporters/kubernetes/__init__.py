"""What a fault handler on Kubernetes asks its API server: where the agents are, and which handler acts.

May import: `isolators.kubernetes.api`, the client.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from asd.errors import UnsupportedError

if TYPE_CHECKING:
    from asd.exporters.kubernetes.lease import KubeLease
    from asd.exporters.kubernetes.pods import PodTargets

__all__ = ["open_lease", "pod_targets"]


def pod_targets(place: str) -> PodTargets:
    """The agents that run as pods; see `asd.exporters.kubernetes.pods.PodTargets`.

    Raises:
        ConfigError: `place` is not valid, or there is no usable configuration.
        UnsupportedError: lightkube is not installed.
    """
    with _needed_by("--agents kubernetes:"):
        from asd.exporters.kubernetes.pods import PodTargets
    return PodTargets(place)


def open_lease(place: str) -> KubeLease:
    """The Lease of a name; see `asd.exporters.kubernetes.lease.KubeLease`. It raises what `pod_targets` does."""
    with _needed_by("--lease"):
        from asd.exporters.kubernetes.lease import KubeLease
    return KubeLease(place)


@contextlib.contextmanager
def _needed_by(option: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"{option} needs {error.name}, which is not installed; pip install 'mindspore-asd[k8s]' brings it."
        ) from None
