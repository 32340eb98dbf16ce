"""Send a few records to a running node and read them back, with Ottla's own client.

python examples/first_records.py [host:port]
"""

import asyncio
import sys

from ottla.client.admin import NewTopic, create_topic
from ottla.client.cluster import ClientPorts, Cluster, NoBroker, Refused
from ottla.client.consumer import open_reader
from ottla.client.offset_spec import BEGINNING
from ottla.client.offsets import resolve
from ottla.client.producer import open_producer
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import TopicPartition
from ottla.runtime.clock import SystemClock
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom

TOPIC = "first-records"
WORDS = {b"lars": b"good morning", b"ella": b"good day", b"arne": b"good night"}


async def send(cluster: Cluster) -> None:
    """Create the topic if it is missing, and send one record per key."""
    try:
        await create_topic(cluster, NewTopic(TOPIC, partitions=2))
    except Refused as refused:
        if refused.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    async with open_producer(cluster) as producer:
        reports = [await producer.send(TOPIC, value, key=key) for key, value in WORDS.items()]
        for report in reports:
            delivered = await report
            print(f"wrote {delivered.partition} offset {delivered.offset}")


async def read(cluster: Cluster) -> None:
    """Read every partition from its beginning to its end."""
    topic = await cluster.topic(TOPIC)
    wanted = {TopicPartition(TOPIC, number): BEGINNING for number in topic.partitions}
    async with open_reader(cluster, await resolve(cluster, wanted)) as reader:
        while not reader.is_at_end:
            for fetched in await reader.poll():
                for record in fetched.records():
                    print(f"{fetched.partition}@{record.offset}  {record.key!r}  {record.value!r}")


async def main(address: str) -> None:
    """Send and read with the node at ``address``."""
    host, _, port = address.rpartition(":")
    ports = ClientPorts(TcpNetwork(), SystemClock(), SystemRandom())
    try:
        async with await Cluster.open(ports, [Address(host.strip("[]"), int(port))]) as cluster:
            await send(cluster)
            await read(cluster)
    except NoBroker as error:
        sys.exit(f"{error}; start one with `make run`")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
