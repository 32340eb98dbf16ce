"""The export of a node's metrics and traces by OTLP, from its settings."""

import logging
import ssl
from functools import partial
from urllib.parse import unquote, urlsplit

import ottla
from ottla.config.generated import BrokerConfig
from ottla.config.otlp_headers import parse_headers
from ottla.node.context import NodeContext
from ottla.node.metrics.otlp_endpoints import metrics_url, traces_url
from ottla.observability.otlp_encoding import Attribute
from ottla.observability.otlp_exporter import ExportTiming, OtlpExporter
from ottla.observability.otlp_http import HttpTarget, post
from ottla.observability.otlp_outbox import Outbox
from ottla.observability.request_traces import RequestTracer
from ottla.runtime.worker import ThreadWorker

log = logging.getLogger(__name__)


def build_otlp(context: NodeContext) -> tuple[OtlpExporter, RequestTracer | None]:
    """Return the exporter and what samples requests; None if none are traced.

    Raises:
        OSError: a file of certificates cannot be read. ssl.SSLError is one.
    """
    config, ports = context.loaded.broker, context.ports
    metrics, traces = metrics_url(config), traces_url(config)
    tracer = None
    if traces is not None:
        ratio = config.ottla_otlp_traces_sample_ratio
        tracer = RequestTracer(ratio, ports.random, ports.clock.now)
    timing = ExportTiming(
        config.ottla_otlp_metrics_interval_ms / 1000, ports.clock.now(), ports.clock.now
    )
    exporter = OtlpExporter(
        resource_of(context),
        ottla.__version__,
        timing,
        ports.random,
        metrics=None if metrics is None else _outbox(context, metrics),
        traces=None if traces is None else _outbox(context, traces),
        tracer=tracer,
    )
    return exporter, tracer


def resource_of(context: NodeContext) -> list[tuple[str, Attribute]]:
    """Return the attributes of everything that a node exports."""
    config = context.loaded.broker
    found: dict[str, Attribute] = {
        "service.name": config.ottla_otlp_service_name,
        "service.namespace": context.cluster_id,
        "service.instance.id": str(int(context.node_id)),
        "service.version": ottla.__version__,
        "kafka.cluster.id": context.cluster_id,
        "kafka.node.id": int(context.node_id),
    }
    for pair in config.ottla_otlp_resource_attributes:
        name, _, value = pair.partition("=")
        found[name.strip()] = unquote(value.strip())
    return list(found.items())


def _outbox(context: NodeContext, url: str) -> Outbox:
    config = context.loaded.broker
    parts = urlsplit(url)
    headers = config.ottla_otlp_headers
    if headers is not None and parts.scheme == "http":
        log.warning("otlp headers are sent without encryption to=%s", parts.hostname)
    tls = partial(tls_context, config)
    if parts.scheme == "https":
        tls()  # fails now rather than with the first export
    target = HttpTarget(
        url=url,
        headers=() if headers is None else parse_headers(headers.reveal()),
        timeout_s=config.ottla_otlp_timeout_ms / 1000,
        compresses=config.ottla_otlp_compression == "gzip",
        tls=tls,
    )
    name = f"{parts.scheme}://{parts.netloc}{parts.path}"
    return Outbox(name, partial(post, target), ThreadWorker("otlp"), context.ports.random)


def tls_context(config: BrokerConfig) -> ssl.SSLContext:
    """Return a context that trusts the configured certificates, or the system's.

    Raises:
        OSError: a file cannot be read.
    """
    made = ssl.create_default_context(cafile=config.ottla_otlp_certificate)
    chain = config.ottla_otlp_client_certificate
    if chain is not None:
        made.load_cert_chain(chain, config.ottla_otlp_client_key)
    return made
