"""MindCluster's public fault: the message of an external detector, and all rules for it.

ClusterD drops a message that breaks a rule, mostly without an answer, so it is validated here before it is sent.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

CODE = "020011001"  # fault of a chip (0), by default to be separated (2), made by a user (1)
RESOURCE = "asd"
MOST_FAULTS = 100

_SHIPPED_RESOURCES = ("CCAE", "fd-online", "pingmesh", "Netmind", "dpcStorage", "dtfsStorage")
_OURS = "SeparateNPUCodes"
_LISTS = ("NotHandleFaultCodes", "SubHealthFaultCodes", "SeparateNPUCodes", "PreSeparateNPUCodes")
_NODE_NAME = r"(?a)\A[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z"

# As a whole and in ASCII: `$` would accept a line break at the end, which ClusterD does not.
_Id = Annotated[str, Meta(pattern=r"(?a)\A[A-Za-z0-9_.-]{8,128}\Z")]
_Milliseconds = Annotated[int, Meta(ge=1_735_689_600_000, le=9_999_999_999_999)]  # from 2025 on, with 13 digits
_Chips = Annotated[list[Annotated[int, Meta(ge=0, le=31)]], Meta(min_length=1, max_length=32)]


class _Influence(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    deviceIds: _Chips  # noqa: N815 - the names of the message
    nodeName: Annotated[str, Meta(pattern=_NODE_NAME)]  # noqa: N815

    def __post_init__(self) -> None:
        if len(set(self.deviceIds)) < len(self.deviceIds):
            raise ValueError(f"deviceIds must have each number once, not {self.deviceIds}")


class _Fault(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    faultId: _Id  # noqa: N815
    faultType: Literal["NPU"]  # noqa: N815
    faultCode: Literal["020011001"]  # noqa: N815
    faultTime: _Milliseconds  # noqa: N815
    assertion: Literal["occur", "recover"]
    influence: Annotated[list[_Influence], Meta(min_length=1, max_length=1000)]
    faultLocation: Annotated[dict[str, str], Meta(max_length=10)] = {}  # noqa: N815
    description: Annotated[str, Meta(pattern=r"(?a)\A[\S ]{0,512}\Z")] = ""

    def __post_init__(self) -> None:
        for key, value in self.faultLocation.items():
            if _bytes(key) > 16 or _bytes(value) > 128:
                raise ValueError("faultLocation must have keys of at most 16 bytes and values of at most 128")


class _Message(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    id: _Id
    timestamp: _Milliseconds
    version: Literal["1.0"]
    resource: Literal["asd"]
    faults: Annotated[list[_Fault], Meta(min_length=1, max_length=MOST_FAULTS)]

    def __post_init__(self) -> None:
        ids = [fault.faultId for fault in self.faults]
        if len(set(ids)) < len(ids):
            raise ValueError("faults must have each faultId once")


def is_node_name(name: str) -> bool:
    """Returns whether `name` is a valid name of one node."""
    return re.match(_NODE_NAME, name) is not None


def registered(shipped: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns the entries that `publicCustomization.json` needs, or ClusterD drops all our messages.

    Args:
        shipped: Present content of that file; it replaces ClusterD's own lists, so they must stay in it.

    Returns:
        The same content with our code and our resource.
    """
    before = shipped or {}
    codes = {name: list(before.get("publicFaultCode", {}).get(name, ())) for name in _LISTS}
    codes[_OURS] += [CODE] * (CODE not in codes[_OURS])
    resources = list(before.get("publicFaultResource", _SHIPPED_RESOURCES))
    return {"publicFaultCode": codes, "publicFaultResource": resources + [RESOURCE] * (RESOURCE not in resources)}


def message_text(message: object) -> str:
    """Returns the JSON text of a valid message."""
    return msgspec.json.encode(validate(message)).decode()


def validate(message: object) -> _Message:
    """Returns a message that keeps every rule; else raises ValueError, which names the rule and the field."""
    try:
        return msgspec.convert(message, _Message)
    except msgspec.ValidationError as error:
        raise ValueError(f"the public fault message breaks a rule: {error}") from error


def _bytes(text: str) -> int:
    return len(text.encode(errors="backslashreplace"))
