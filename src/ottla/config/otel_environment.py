"""OpenTelemetry's environment variables, as settings of a node.

They have the lowest precedence: a properties file, a ``KAFKA_*`` variable or an override replaces
them. A variable that does not concern a node is ignored, and so are all of them if
``OTEL_SDK_DISABLED`` is true.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from ottla.config.properties import Setting

VARIABLES: Final = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "ottla.otlp.endpoint",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "ottla.otlp.metrics.endpoint",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "ottla.otlp.traces.endpoint",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "ottla.otlp.protocol",
    "OTEL_EXPORTER_OTLP_HEADERS": "ottla.otlp.headers",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "ottla.otlp.timeout.ms",
    "OTEL_EXPORTER_OTLP_COMPRESSION": "ottla.otlp.compression",
    "OTEL_EXPORTER_OTLP_CERTIFICATE": "ottla.otlp.certificate",
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "ottla.otlp.client.certificate",
    "OTEL_EXPORTER_OTLP_CLIENT_KEY": "ottla.otlp.client.key",
    "OTEL_SERVICE_NAME": "ottla.otlp.service.name",
    "OTEL_RESOURCE_ATTRIBUTES": "ottla.otlp.resource.attributes",
    "OTEL_METRIC_EXPORT_INTERVAL": "ottla.otlp.metrics.interval.ms",
}
"""The settings by variable; values are the same in both."""

_RATIO: Final = "ottla.otlp.traces.sample.ratio"
_SAMPLER: Final = "OTEL_TRACES_SAMPLER"
_ARGUMENT: Final = "OTEL_TRACES_SAMPLER_ARG"
_RATIO_SAMPLERS: Final = ("traceidratio", "parentbased_traceidratio")
_FIXED_SAMPLERS: Final = {
    "always_on": "1",
    "parentbased_always_on": "1",
    "always_off": "0",
    "parentbased_always_off": "0",
}


def from_otel_environment(environment: Mapping[str, str]) -> list[Setting]:
    """Return the settings of all variables that are set and not empty."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    settings = [
        Setting(key, environment[name], name)
        for name, key in VARIABLES.items()
        if environment.get(name)
    ]
    if environment.get("OTEL_METRICS_EXPORTER") == "none":
        settings.append(Setting("ottla.otlp.metrics.enable", "false", "OTEL_METRICS_EXPORTER"))
    return [*settings, *_ratio(environment)]


def _ratio(environment: Mapping[str, str]) -> Iterator[Setting]:
    """Yield the ratio of traces. Without any variable about it a node does not trace."""
    if environment.get("OTEL_TRACES_EXPORTER") == "none":
        yield Setting(_RATIO, "0", "OTEL_TRACES_EXPORTER")
        return
    sampler = environment.get(_SAMPLER, "")
    if sampler in _FIXED_SAMPLERS:
        yield Setting(_RATIO, _FIXED_SAMPLERS[sampler], _SAMPLER)
    elif environment.get(_ARGUMENT) and (not sampler or sampler in _RATIO_SAMPLERS):
        yield Setting(_RATIO, environment[_ARGUMENT], _ARGUMENT)
    elif sampler in _RATIO_SAMPLERS:
        yield Setting(_RATIO, "1", _SAMPLER)
