"""The public fault as a Protocol Buffers message, for ClusterD's gRPC door.

The schema is small and fixed, so it is written out here instead of in generated code, which needs a compiler and holds
for some versions of `protobuf` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

__all__ = ["decode_reply", "encode_message"]

_SCHEMA = {
    "PublicFaultRequest": "string id, int64 timestamp, string version, string resource, Fault* faults",
    "Fault": "string faultId, string faultType, string faultCode, int64 faultTime, string assertion, "
    "Entry* faultLocation, PubFaultInfo* influence, string description",
    "Entry": "string key, string value",  # as the entries of a map<string, string> go over the wire
    "PubFaultInfo": "string nodeName, string nodeSN, int32* deviceIds",
    "RespStatus": "int32 code, bytes info",  # a string in ClusterD's, of which nobody promises that it is UTF-8
}
"""Fields are numbered from 1 on; a star means `repeated`."""


def encode_message(content: Mapping[str, Any]) -> bytes:
    """The bytes of a valid message, see `asd.exporters.isolators.public_fault.validate`."""
    faults = [
        {**fault, "faultLocation": [{"key": key, "value": value} for key, value in location.items()]}
        for fault, location in ((fault, fault.get("faultLocation", {})) for fault in content["faults"])
    ]
    encoded: bytes = _CLASSES["PublicFaultRequest"](**{**content, "faults": faults}).SerializeToString()
    return encoded


def decode_reply(data: bytes) -> tuple[int, str]:
    """Code and words of ClusterD's answer: 0 ok, 409 bad parameter, 410 too many.

    Raises:
        ValueError: `data` is no such answer.
    """
    try:
        reply = _CLASSES["RespStatus"].FromString(data)
    except message.DecodeError as error:
        raise ValueError(str(error)) from error
    return reply.code, reply.info.decode(errors="replace")


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="pubfault.proto", syntax="proto3")
    for name, fields in _SCHEMA.items():
        made = file.message_type.add(name=name)
        for number, (kind, field) in enumerate((words.split() for words in fields.split(",")), 1):
            bare = kind.rstrip("*")
            added = made.field.add(name=field, json_name=field, number=number, label=3 if kind != bare else 1)
            if bare in _SCHEMA:
                added.type, added.type_name = added.TYPE_MESSAGE, bare
            else:
                added.type = added.Type.Value(f"TYPE_{bare.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in _SCHEMA}


_CLASSES = _classes()
