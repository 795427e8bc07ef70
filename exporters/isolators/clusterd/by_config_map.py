"""Tells ClusterD by a ConfigMap, which remembers too what was told."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from asd.exporters.isolators.clusterd.transport import DoorError, MessageAllowance, ToldFaults
from asd.exporters.isolators.kubernetes.api import ConflictError, KubeApi, KubeError
from asd.exporters.isolators.public_fault import message_text, validate

__all__ = ["ConfigMapDoor"]

_LABEL = {"mc-consumer-publicfault": "true"}
_KEY = "PublicFault"
_CHIP = re.compile(r"[^,]*-([0-9]+)", re.ASCII)


class ConfigMapDoor:
    """One ConfigMap with all faults. ClusterD reads it whenever it changes, and once more when it starts.

    Args:
        api: The client.
        name: Name of the ConfigMap.
        namespace: Its namespace.
    """

    def __init__(self, api: KubeApi, name: str, namespace: str) -> None:
        self._api = api
        self._name = name
        self._namespace = namespace
        self._allowance = MessageAllowance()

    def told(self) -> ToldFaults:
        """What it was told last, as `Door.told`."""
        try:
            found = self._api.get_config_map(self._name, self._namespace)
        except KubeError as error:
            raise DoorError(error.reason, retry=error.retry) from error
        if found is None:
            return ToldFaults(None)
        try:
            message = json.loads((found.get("data") or {})[_KEY])
            validate(message)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            where = f"ConfigMap {self._namespace}/{self._name}"
            raise DoorError(f"{where} holds no public fault message of ours: {error}", retry=False) from error
        return ToldFaults(message, (), found["metadata"]["resourceVersion"])

    def tell(self, message: dict[str, Any], fault_id: str, before: ToldFaults) -> bool:  # noqa: ARG002 - the message says it
        """Writes the ConfigMap, as `Door.tell`."""
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace, "labels": _LABEL}
        data = {_KEY: message_text(message)}
        self._allowance.take()
        try:
            if before.message is None:
                self._api.create_config_map(
                    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
                )
            else:
                metadata = {"labels": _LABEL, "resourceVersion": before.version}
                self._api.patch_config_map(self._name, self._namespace, {"metadata": metadata, "data": data})
        except ConflictError:
            return False
        except KubeError as error:
            raise DoorError(error.reason, retry=error.retry) from error
        return True

    def separated(self, node: str) -> Collection[int]:
        """The chips that the device plugin lists as separated by hand, as `Door.separated`."""
        try:
            found = self._api.get_config_map(f"mindx-dl-deviceinfo-{node}", "kube-system")
        except KubeError as error:
            raise DoorError(error.reason, retry=error.retry) from error
        listed = ((found or {}).get("data") or {}).get("ManuallySeparateNPU", "")
        return {int(chip.group(1)) for chip in map(_CHIP.fullmatch, listed.split(",")) if chip}
