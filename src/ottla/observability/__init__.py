"""What an operator sees: counters and gauges, /metrics, health, the event loop's lag.

Not what decides anything: no rule of Kafka reads a metric. Numbers that come from the metadata
image are computed in `ottla.node.gauges`, which stands high enough to see it. Start reading at
`exposition` (the text that is served), then `request_meter` and `topic_events` (who counts).
"""
