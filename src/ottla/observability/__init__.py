"""Observability for operators: counters and gauges, /metrics, OTLP, health, lag of the event loop.

No rule of Kafka depends on a metric. Metrics of the metadata image are computed in
`ottla.node.metrics.gauges`, since this package must not import it. Start reading at `exposition`
(the text format), then `request_meter` and `topic_events` (the counters).
"""
