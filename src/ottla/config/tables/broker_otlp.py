"""Broker keys of the export of metrics and traces by OTLP.

Each has an environment variable of OpenTelemetry, see `ottla.config.otel_environment`.
Each row: name, type, default, rule, importance, update mode, description.
"""

from ottla.config.key_definition import Importance, Key, Update
from ottla.config.value_rules import NonEmpty, Pairs, at_least, between, one_of
from ottla.config.values import Type

BOOLEAN = Type.BOOLEAN
DOUBLE = Type.DOUBLE
INT = Type.INT
LIST = Type.LIST
PASSWORD = Type.PASSWORD
STRING = Type.STRING
MEDIUM = Importance.MEDIUM
LOW = Importance.LOW
READ_ONLY = Update.READ_ONLY

# fmt: off
BROKER_OTLP: tuple[Key, ...] = (
    Key("ottla.otlp.endpoint", STRING, None, NonEmpty(), MEDIUM, READ_ONLY,
        "The URL of an OTLP collector, to which /v1/metrics and /v1/traces are added; nothing is "
        "exported if not set."),
    Key("ottla.otlp.metrics.endpoint", STRING, None, NonEmpty(), LOW, READ_ONLY,
        "The whole URL that metrics are sent to, in place of ottla.otlp.endpoint."),
    Key("ottla.otlp.traces.endpoint", STRING, None, NonEmpty(), LOW, READ_ONLY,
        "The whole URL that traces are sent to, in place of ottla.otlp.endpoint."),
    Key("ottla.otlp.protocol", STRING, "http/protobuf", one_of("http/protobuf"), LOW, READ_ONLY,
        "The transport of OTLP. gRPC is not supported; collectors have both, on different ports."),
    Key("ottla.otlp.headers", PASSWORD, None, None, LOW, READ_ONLY,
        "Headers of every export, such as authorization, as name=value,...; values may be "
        "percent-encoded."),
    Key("ottla.otlp.timeout.ms", INT, 10_000, at_least(1), LOW, READ_ONLY,
        "How long the collector may take to answer."),
    Key("ottla.otlp.compression", STRING, "gzip", one_of("gzip", "none"), LOW, READ_ONLY,
        "How exports are compressed."),
    Key("ottla.otlp.certificate", STRING, None, NonEmpty(), LOW, READ_ONLY,
        "The PEM file of the certificates that the collector's must be signed by; those of the "
        "system if not set."),
    Key("ottla.otlp.client.certificate", STRING, None, NonEmpty(), LOW, READ_ONLY,
        "The PEM file of the certificate chain that this node shows to the collector."),
    Key("ottla.otlp.client.key", STRING, None, NonEmpty(), LOW, READ_ONLY,
        "The PEM file of the key of ottla.otlp.client.certificate."),
    Key("ottla.otlp.service.name", STRING, "ottla", NonEmpty(), LOW, READ_ONLY,
        "service.name of everything that this node exports."),
    Key("ottla.otlp.resource.attributes", LIST, (), Pairs(), LOW, READ_ONLY,
        "Further attributes of this node, as name=value."),
    Key("ottla.otlp.metrics.enable", BOOLEAN, True, None, LOW, READ_ONLY,
        "Whether the metrics of this node are exported."),
    Key("ottla.otlp.metrics.interval.ms", INT, 60_000, at_least(100), LOW, READ_ONLY,
        "How often the metrics of this node are exported."),
    Key("ottla.otlp.client.metrics.enable", BOOLEAN, True, None, LOW, READ_ONLY,
        "Whether metrics that clients push (KIP-714) are forwarded."),
    Key("ottla.otlp.traces.sample.ratio", DOUBLE, 0.0, between(0, 1), LOW, READ_ONLY,
        "The fraction of requests that are traced; 0 disables traces."),
)
# fmt: on
