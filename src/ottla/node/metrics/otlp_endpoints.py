"""Where a node exports metrics and traces to, by its settings. Light: every start reads it."""

from typing import Final

from ottla.config.generated import BrokerConfig

CLIENT_PREFIX: Final = "kafka_client_"
"""Begins the names of metrics that clients push, in /metrics."""


def metrics_url(config: BrokerConfig) -> str | None:
    """Return the URL of metrics; None if neither the node's nor its clients' are exported."""
    if not (config.ottla_otlp_metrics_enable or config.ottla_otlp_client_metrics_enable):
        return None
    return config.ottla_otlp_metrics_endpoint or _below(config, "/v1/metrics")


def traces_url(config: BrokerConfig) -> str | None:
    """Return the URL of traces; None if no request is traced."""
    # NaN is not greater than 0 either.
    if not config.ottla_otlp_traces_sample_ratio > 0:
        return None
    return config.ottla_otlp_traces_endpoint or _below(config, "/v1/traces")


def shows_metrics(config: BrokerConfig) -> bool:
    """Say whether the metrics of this node are read by anybody."""
    return config.ottla_metrics_listener is not None or (
        config.ottla_otlp_metrics_enable and metrics_url(config) is not None
    )


def forwards_client_metrics(config: BrokerConfig) -> bool:
    """Say whether metrics that clients push are exported."""
    return config.ottla_otlp_client_metrics_enable and metrics_url(config) is not None


def _below(config: BrokerConfig, path: str) -> str | None:
    base = config.ottla_otlp_endpoint
    return None if base is None else base.rstrip("/") + path
