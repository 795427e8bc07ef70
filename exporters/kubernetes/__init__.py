"""What a fault handler on Kubernetes asks its API server: where the agents are, and which handler acts.

May import: `isolators.kubernetes.api`, the client.
"""

from __future__ import annotations

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
    try:
        from asd.exporters.kubernetes.pods import PodTargets
    except ModuleNotFoundError as error:
        raise _missing("--agents kubernetes:") from error
    return PodTargets(place)


def open_lease(place: str) -> KubeLease:
    """The Lease of a name; see `asd.exporters.kubernetes.lease.KubeLease`.

    Raises:
        ConfigError: `place` is not valid, or there is no usable configuration.
        UnsupportedError: lightkube is not installed.
    """
    try:
        from asd.exporters.kubernetes.lease import KubeLease
    except ModuleNotFoundError as error:
        raise _missing("--lease") from error
    return KubeLease(place)


def _missing(option: str) -> UnsupportedError:
    return UnsupportedError(
        f"{option} needs lightkube, which is not installed; pip install 'mindspore-asd[k8s]' brings it."
    )
