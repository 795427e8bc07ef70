"""A receiver of OTLP over HTTP, which reads what arrives by OpenTelemetry's own protobuf classes."""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest


class Receiver:
    """The receiver.

    Attributes:
        code: What it answers, 200 when it takes what it gets.
        heads: The headers of each request.
    """

    def __init__(self, port=0):
        self.logs, self.metrics, self.heads, self.code = [], {}, [], 200
        receiver = self

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.heads.append((self.path, dict(self.headers)))
                if receiver.code == 200:
                    receiver.take(self.path, body)
                self.send_response(receiver.code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Answers)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def take(self, path, body):
        if path == "/v1/logs":
            for of_resource in ExportLogsServiceRequest.FromString(body).resource_logs:
                shared = values(of_resource.resource.attributes)
                for scope in of_resource.scope_logs:
                    self.logs += [(shared, record) for record in scope.log_records]
        else:
            assert path == "/v1/metrics"
            for of_resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in of_resource.scope_metrics:
                    self.metrics |= {metric.name: metric for metric in scope.metrics}

    @property
    def ids(self):
        return [values(record.attributes)["cloudevents.event_id"] for _, record in list(self.logs)]

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def values(attributes):
    """Attributes as a plain mapping."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
