"""ClusterD's gRPC service for public faults, from its schema and with Google's own decoder."""

import time
from concurrent.futures import ThreadPoolExecutor

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

SCHEMA = {
    "PublicFaultRequest": (
        ("id", 1, "string"), ("timestamp", 2, "int64"), ("version", 3, "string"), ("resource", 4, "string"),
        ("faults", 5, "*Fault"),
    ),
    "Fault": (
        ("faultId", 1, "string"), ("faultType", 2, "string"), ("faultCode", 3, "string"), ("faultTime", 4, "int64"),
        ("assertion", 5, "string"), ("faultLocation", 6, "*Fault.FaultLocationEntry"),
        ("influence", 7, "*PubFaultInfo"), ("description", 8, "string"),
    ),
    "PubFaultInfo": (("nodeName", 1, "string"), ("nodeSN", 2, "string"), ("deviceIds", 3, "*int32")),
    "RespStatus": (("code", 1, "int32"), ("info", 2, "string")),
}  # fmt: skip
_ENTRY = (("key", 1, "string"), ("value", 2, "string"))


def _classes():
    field_type = descriptor_pb2.FieldDescriptorProto
    scalars = {"string": field_type.TYPE_STRING, "int64": field_type.TYPE_INT64, "int32": field_type.TYPE_INT32}

    def fill(message, fields):
        for name, number, kind in fields:
            bare = kind.lstrip("*")
            repeated = field_type.LABEL_REPEATED if kind.startswith("*") else field_type.LABEL_OPTIONAL
            added = message.field.add(name=name, json_name=name, number=number, label=repeated)
            if bare in scalars:
                added.type = scalars[bare]
            else:
                added.type, added.type_name = field_type.TYPE_MESSAGE, f".{bare}"

    file = descriptor_pb2.FileDescriptorProto(name="pubfault.proto", syntax="proto3")
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        fill(message, fields)
        if name == "Fault":
            entry = message.nested_type.add(name="FaultLocationEntry")
            entry.options.map_entry = True
            fill(entry, _ENTRY)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in SCHEMA}


CLASSES = _classes()


def decoded(data):
    """A request as the JSON of the ConfigMap has it."""
    found = json_format.MessageToDict(CLASSES["PublicFaultRequest"].FromString(data))
    found["timestamp"] = int(found["timestamp"])
    for fault in found["faults"]:
        fault["faultTime"] = int(fault["faultTime"])
    return found


class Service:
    """The service.

    Attributes:
        mode: How it fails now: None, a code of its answer, "hang", "garbage" or "down".
        seen: The last request that it took.
        requests: Every request.
    """

    def __init__(self):
        self.mode, self.seen, self.requests = None, None, []
        handler = grpc.unary_unary_rpc_method_handler(self._serve)
        self.server = grpc.server(ThreadPoolExecutor(4))
        self.server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("PubFault", {"SendPublicFault": handler})]
        )
        self.target = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def close(self):
        self.server.stop(0).wait()

    def _serve(self, data, context):
        self.requests.append(decoded(data))
        end = time.monotonic() + 3
        while self.mode == "hang" and context.is_active() and time.monotonic() < end:
            time.sleep(0.01)
        if self.mode == "hang" or not context.is_active():
            context.abort(grpc.StatusCode.CANCELLED, "it took too long")
        if self.mode == "down":
            context.abort(grpc.StatusCode.UNAVAILABLE, "no endpoints")
        if self.mode == "garbage":
            return b"\xff\xff\xff"
        if isinstance(self.mode, int):
            return CLASSES["RespStatus"](code=self.mode, info="told\nto").SerializeToString()
        self.seen = self.requests[-1]
        return b""
