"""The public fault as a Protocol Buffers message, for ClusterD's gRPC door.

The schema is small and fixed, so it is written out here instead of in generated code:

    message PublicFaultRequest { string id = 1; int64 timestamp = 2; string version = 3; string resource = 4;
                                 repeated Fault faults = 5; }
    message Fault { string faultId = 1; string faultType = 2; string faultCode = 3; int64 faultTime = 4;
                    string assertion = 5; map<string, string> faultLocation = 6; repeated PubFaultInfo influence = 7;
                    string description = 8; }
    message PubFaultInfo { string nodeName = 1; string nodeSN = 2; repeated int32 deviceIds = 3; }
    message RespStatus { int32 code = 1; string info = 2; }
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["decode_reply", "encode_message"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


def encode_message(message: Mapping[str, Any]) -> bytes:
    """The bytes of a valid message, see `asd.exporters.isolators.public_fault.validate`."""
    return (
        _text(1, message["id"])
        + _number(2, message["timestamp"])
        + _text(3, message["version"])
        + _text(4, message["resource"])
        + b"".join(_bytes(5, _fault(fault)) for fault in message["faults"])
    )


def decode_reply(data: bytes) -> tuple[int, str]:
    """Code and words of ClusterD's answer: 0 ok, 409 bad parameter, 410 too many.

    Raises:
        ValueError: `data` is no such answer.
    """
    code, info = 0, b""
    for field, value in _fields(data):
        if field == 1 and isinstance(value, int):
            code = value - (1 << 64) if value >> 63 else value
        elif field == 2 and isinstance(value, bytes):
            info = value
    return code, info.decode(errors="replace")


def _fault(fault: Mapping[str, Any]) -> bytes:
    location = fault.get("faultLocation", {})
    return (
        _text(1, fault["faultId"])
        + _text(2, fault["faultType"])
        + _text(3, fault["faultCode"])
        + _number(4, fault["faultTime"])
        + _text(5, fault["assertion"])
        + b"".join(_bytes(6, _text(1, key) + _text(2, value)) for key, value in location.items())
        + b"".join(_bytes(7, _influence(node)) for node in fault["influence"])
        + _text(8, fault.get("description", ""))
    )


def _influence(node: Mapping[str, Any]) -> bytes:
    ids = b"".join(_varint(number) for number in node["deviceIds"])
    return _text(1, node.get("nodeName", "")) + _text(2, node.get("nodeSN", "")) + _bytes(3, ids)


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode(errors="replace")) if value else b""


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value) if value else b""


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        kind = key & 7
        if kind == _VARINT:
            number, position = _read_varint(data, position)
            yield key >> 3, number
            continue
        if kind == _BYTES:
            size, position = _read_varint(data, position)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind} at byte {position}")
        if position + size > len(data):
            raise ValueError(f"{size} bytes are announced and {len(data) - position} are left")
        yield key >> 3, data[position : position + size]
        position += size


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for count in range(_LONGEST_VARINT):
        if position + count >= len(data):
            raise ValueError("it ends within a number")
        byte = data[position + count]
        value |= (byte & 0x7F) << 7 * count
        if not byte & 0x80:
            return value & (1 << 64) - 1, position + count + 1
    raise ValueError("a number has more than ten bytes")
