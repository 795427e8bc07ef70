"""ConfigMap from which ClusterD reads public faults; it also stores the reported ones."""

import json
import re
from collections.abc import Collection
from typing import Any, NamedTuple

from lightkube.resources.core_v1 import ConfigMap
from lightkube.types import PatchType

from asd.exporters.isolators.kubernetes.api import ConflictError, KubeApi, KubeError, NotFoundError, as_dict
from asd.exporters.isolators.public_fault import message_text, validate

_LABEL = {"mc-consumer-publicfault": "true"}
_KEY = "PublicFault"
_CHIP = re.compile(r"[^,]*-([0-9]+)", re.ASCII)


class SavedFaults(NamedTuple):
    """Content of the ConfigMap."""

    message: dict[str, Any] | None  # the last message; None before the first
    version: str = ""  # resource version, different in a later state


class FaultConfigMap:
    """ConfigMap with all faults. ClusterD reads it whenever it changes, and once more when it starts.

    Args:
        api: The client.
        namespace: Namespace of the ConfigMap.
        name: Name of the ConfigMap.
    """

    def __init__(self, api: KubeApi, namespace: str, name: str) -> None:
        self._api = api
        self._name = name
        self._namespace = namespace

    def read(self) -> SavedFaults:
        """Returns the last report; raises KubeError if the server gives no answer, or the ConfigMap is not ours."""
        found = self._get(self._namespace, self._name)
        if found is None:
            return SavedFaults(None)
        try:
            message = json.loads((found.get("data") or {})[_KEY])
            validate(message)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            where = f"ConfigMap {self._namespace}/{self._name}"
            raise KubeError(f"{where} holds no public fault message of ours: {error}", retry=False) from error
        return SavedFaults(message, found["metadata"]["resourceVersion"])

    def write(self, message: dict[str, Any], before: SavedFaults) -> bool:
        """Reports `message`; returns False if the ConfigMap was changed since `before`."""
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace, "labels": _LABEL}
        data = {_KEY: message_text(message)}
        try:
            if before.message is None:
                made: Any = ConfigMap.from_dict({"metadata": metadata, "data": data})
                with self._api.asking(f"making ConfigMap {self._name}") as client:
                    client.create(made)
            else:
                patch = {"metadata": {"labels": _LABEL, "resourceVersion": before.version}, "data": data}
                with self._api.asking(f"changing ConfigMap {self._namespace}/{self._name}") as client:
                    client.patch(ConfigMap, self._name, patch, namespace=self._namespace, patch_type=PatchType.MERGE)
        except ConflictError:
            return False
        return True

    def separated(self, node: str) -> Collection[int]:
        """Returns the chips of `node` that the device plugin lists as separated by hand."""
        found = self._get("kube-system", f"mindx-dl-deviceinfo-{node}")
        listed = ((found or {}).get("data") or {}).get("ManuallySeparateNPU", "")
        return {int(chip.group(1)) for chip in map(_CHIP.fullmatch, listed.split(",")) if chip}

    def _get(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Returns a ConfigMap; None when it does not exist."""
        try:
            with self._api.asking(f"reading ConfigMap {namespace}/{name}") as client:
                return as_dict(client.get(ConfigMap, name, namespace=namespace))
        except NotFoundError:
            return None
