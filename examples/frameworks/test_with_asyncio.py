"""pytest-asyncio and aiokafka: `pip install pytest-asyncio aiokafka`."""

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from ottla.testing import Cluster


@pytest.mark.asyncio
async def test_order_is_read_back(ottla_node: Cluster) -> None:
    """A record that was sent is received."""
    at = ottla_node.bootstrap
    async with AIOKafkaProducer(bootstrap_servers=at) as producer:
        await producer.send_and_wait("orders", b"one")
    async with AIOKafkaConsumer(
        "orders", bootstrap_servers=at, auto_offset_reset="earliest"
    ) as consumer:
        assert (await consumer.getone()).value == b"one"
