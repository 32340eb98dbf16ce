"""Create a topic on a running node, describe it, and print the quorum's leader.

python examples/first_topic.py [host:port]
"""

import asyncio
import sys

from ottla.client.connection import Connection
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address

TOPIC = "greetings"


async def create(connection: Connection) -> None:
    """Create the topic; an existing one is not an error."""
    wanted = CreatableTopic(name=TOPIC, num_partitions=3, replication_factor=1)
    reply = await connection.send(CreateTopicsRequest(topics=[wanted], timeout_ms=5000))
    assert isinstance(reply, CreateTopicsResponse)
    for topic in reply.topics:
        print(f"{topic.name}: {ErrorCode(topic.error_code).name}")


async def describe(connection: Connection) -> None:
    """Print every topic and the leaders of its partitions."""
    reply = await connection.send(MetadataRequest(topics=None))
    assert isinstance(reply, MetadataResponse)
    for topic in reply.topics or []:
        for partition in sorted(topic.partitions, key=lambda each: each.partition_index):
            print(f"{topic.name}-{partition.partition_index} leader={partition.leader_id}")


async def quorum(connection: Connection) -> None:
    """Print the leader of the metadata quorum."""
    wanted = RequestTopicData("__cluster_metadata", [RequestPartitionData(0)])
    reply = await connection.send(DescribeQuorumRequest(topics=[wanted]))
    assert isinstance(reply, DescribeQuorumResponse)
    state = reply.topics[0].partitions[0]
    print(f"quorum leader={state.leader_id} epoch={state.leader_epoch} at {state.high_watermark}")


async def main(address: str) -> None:
    """Run the three requests against the node at ``address``."""
    host, _, port = address.rpartition(":")
    server = Address(host.strip("[]"), int(port))
    try:
        connection = await Connection.open(TcpNetwork(), server, client_id="first-topic")
    except OSError as error:
        sys.exit(f"no node at {address} ({error.strerror}); start one with `make run`")
    try:
        await create(connection)
        await describe(connection)
        await quorum(connection)
    finally:
        await connection.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
