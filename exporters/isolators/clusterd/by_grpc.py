"""Tells ClusterD by its gRPC service; what was told is kept in a file."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import grpc

from asd.exporters.isolators.clusterd.transport import DoorError, MessageAllowance, StateFile, ToldFaults
from asd.exporters.isolators.clusterd.wire import decode_reply, encode_message
from asd.exporters.isolators.marks import plain

__all__ = ["GrpcDoor"]

_METHOD = "/PubFault/SendPublicFault"
_TOO_MANY = 410
_FOR_GOOD = ("INVALID_ARGUMENT", "UNIMPLEMENTED", "PERMISSION_DENIED", "UNAUTHENTICATED", "FAILED_PRECONDITION")


class GrpcDoor:
    """One request with all faults each time: ClusterD forgets them when it starts anew, and ignores what it knows.

    Args:
        target: Where the service is, for example `clusterd-grpc-svc.mindx-dl:8899`.
        state: File to keep in what was told.
        timeout: Seconds that a request may take.
    """

    def __init__(self, target: str, state: Path, timeout: float) -> None:
        self._target = target
        self._state = StateFile(state)
        self._timeout = timeout
        self._allowance = MessageAllowance()

    def told(self) -> ToldFaults:
        """What it was told last, as `Door.told`."""
        return self._state.read()

    def tell(self, message: dict[str, Any], fault_id: str, before: ToldFaults) -> bool:
        """Sends the message, as `Door.tell`."""
        self._allowance.take()
        self._state.write(message, {*before.pending, fault_id})  # first, or a crash would forget the id
        code, info = self._send(encode_message(message))
        if code != 0:
            said = plain(info, 200).rstrip(".") or "without a word"
            raise DoorError(f"ClusterD at {self._target} answered {code}: {said}", retry=code == _TOO_MANY)
        self._state.write(message, ())
        return True

    def separated(self, node: str) -> Collection[int]:  # noqa: ARG002 - the service does not tell
        """None, as this service can't be asked; see `Door.separated`."""
        return ()

    def _send(self, data: bytes) -> tuple[int, str]:
        try:
            with grpc.insecure_channel(self._target) as channel:
                call = channel.unary_unary(_METHOD, request_serializer=None, response_deserializer=None)
                return decode_reply(call(data, timeout=self._timeout))
        except grpc.RpcError as error:
            status = error.code().name
            said = plain(error.details() or "", 200).rstrip(".")
            reason = f"ClusterD at {self._target} was not told: {status}: {said}"
            raise DoorError(reason, retry=status not in _FOR_GOOD) from error
        except ValueError as error:
            raise DoorError(
                f"the answer of ClusterD at {self._target} can't be understood: {error}", retry=True
            ) from error
