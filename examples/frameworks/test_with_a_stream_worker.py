"""A worker as Faust's: it reads a topic, transforms, and writes another. `pip install aiokafka`."""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from ottla.testing import Cluster


async def work(bootstrap: str) -> None:
    """Copy orders in capitals, for ever."""
    async with (
        AIOKafkaConsumer(
            "orders", bootstrap_servers=bootstrap, group_id="worker", auto_offset_reset="earliest"
        ) as orders,
        AIOKafkaProducer(bootstrap_servers=bootstrap) as capitals,
    ):
        async for order in orders:
            await capitals.send_and_wait("capitals", (order.value or b"").upper())


def test_orders_are_written_in_capitals(ottla_node: Cluster) -> None:
    """The worker runs beside the test and is cancelled at its end."""

    async def run() -> bytes | None:
        at = ottla_node.bootstrap
        async with asyncio.TaskGroup() as tasks:
            worker = tasks.create_task(work(at))
            async with AIOKafkaProducer(bootstrap_servers=at) as producer:
                await producer.send_and_wait("orders", b"tea")
            async with AIOKafkaConsumer(
                "capitals", bootstrap_servers=at, auto_offset_reset="earliest"
            ) as capitals:
                found = await asyncio.wait_for(capitals.getone(), 60)
            worker.cancel()
        return found.value

    assert asyncio.run(run()) == b"TEA"
