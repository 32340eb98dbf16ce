"""Metrics of the registry: requests by status, their latency, and schema validation."""

import asyncio
from typing import Any

from ottla.api.produce.schema_checks import TOPICS_COUNTED_MAX, ValidationCounts
from ottla.node.broker.schema_validation import validation_families
from ottla.observability.exposition import Registry
from ottla.registry.http_metrics import MeasuredApp


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": scope["status"]})
    await send({"type": "http.response.body", "body": b"x"})


def test_requests_are_counted_by_status_and_measured() -> None:
    measured, sent = MeasuredApp(app), []

    async def send(message: Any) -> None:
        sent.append(message["type"])

    async def serve() -> None:
        for status in (200, 200, 404):
            await measured({"status": status}, send, send)

    asyncio.run(serve())
    page = Registry([lambda: measured.collect("r_")]).render().decode()
    assert 'r_requests_total{code="200"} 2' in page
    assert 'r_requests_total{code="404"} 1' in page
    assert "r_request_duration_seconds_count 3" in page
    assert sent == ["http.response.start", "http.response.body"] * 3


def test_records_of_schema_validation_are_counted_by_topic() -> None:
    counts = ValidationCounts()
    counts.add(counts.rejected, "orders", 2)
    counts.add(counts.rejected, "orders", 1)
    counts.add(counts.dead_letters, "items", 5)
    page = Registry([lambda: validation_families([counts])]).render().decode()
    assert 'ottla_schema_validation_rejected_records_total{topic="orders"} 3' in page
    assert 'ottla_schema_validation_dead_letter_records_total{topic="items"} 5' in page


def test_topics_beyond_the_limit_are_counted_together() -> None:
    counts = ValidationCounts()
    for number in range(TOPICS_COUNTED_MAX + 2):
        counts.add(counts.rejected, f"t{number}", 1)
    assert len(counts.rejected) == TOPICS_COUNTED_MAX + 1
    assert counts.rejected["other"] == 2
