"""An OTLP collector over HTTP that parses what it gets with OpenTelemetry's own classes."""

import contextlib
import gzip
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, ResourceMetrics
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.patience import SECONDS_MAX


@dataclass
class Collected:
    """What has arrived. ``statuses`` are answered first, one to a request; then 200."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)
    traces: list[ExportTraceServiceRequest] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def resources(self) -> list[ResourceMetrics]:
        return [each for request in self.metrics for each in request.resource_metrics]

    def metric_names(self) -> set[str]:
        return {metric.name for each in self.resources() for metric in metrics_in(each)}

    def spans(self) -> list[Span]:
        return [
            span
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, 60), what

    def add(self, path: str, headers: dict[str, str], body: bytes) -> int:
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        with self._changed:
            self.requests.append((path, headers))
            self._changed.notify_all()
            if self.statuses:
                return self.statuses.pop(0)
            if path == "/v1/metrics":
                self.metrics.append(ExportMetricsServiceRequest.FromString(body))
            elif path == "/v1/traces":
                self.traces.append(ExportTraceServiceRequest.FromString(body))
            else:
                return 404
            return 200


def metrics_in(resource: ResourceMetrics) -> list[Metric]:
    return [metric for scope in resource.scope_metrics for metric in scope.metrics]


@contextlib.contextmanager
def collector(tls: ssl.SSLContext | None = None) -> Iterator[Collected]:
    collected = Collected()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status = collected.add(self.path, headers, body)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    host = "127.0.0.1" if tls is None else "localhost"
    scheme = "http" if tls is None else "https"
    collected.url = f"{scheme}://{host}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collected
    finally:
        server.shutdown()
        server.server_close()
        thread.join(SECONDS_MAX)
