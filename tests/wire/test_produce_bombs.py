"""A request that is expensive to validate does not delay other clients."""

import struct
import threading
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import pytest
from produce_node import Node, running_node

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.batch import Compression, read_header
from ottla.protocol.records.compression import compress
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import Producer, build_batch, encode_records, seal_batch
from ottla.protocol.types import Millis, Offset

BOMBS = 12
BOMB_BYTES = 60 << 20  # of gzip: about 0.15 s each, 1.8 s in all
PING_S_MAX = 1.0


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running_node() as node:
        yield node


def bomb() -> bytes:
    """Return a batch of one valid record that unpacks to nearly as much as is allowed."""
    region = encode_records([Record(Offset(0), Millis(1), None, bytes(BOMB_BYTES))], 0, 1)
    header = read_header(build_batch([Record(Offset(0), Millis(1), None, b"")]))
    header = header._replace(attributes=Compression.GZIP)
    return bytes(seal_batch(header, compress(Compression.GZIP, region, 9)))


def test_ping_is_answered_while_bombs_are_decompressed(node: Node) -> None:
    topic, data = node.topic(partitions=BOMBS), bomb()
    partitions = [PartitionProduceData(index, data) for index in range(BOMBS)]
    request = ProduceRequest(None, 1, 60_000, [TopicProduceData(topic, partition_data=partitions)])
    pauses: list[float] = []
    with node.connected() as client, node.connected() as other:
        number = client.send(ApiKey.PRODUCE, 9, request)
        reply: list[object] = []
        receive = partial(client.receive, ApiKey.PRODUCE, 9, number)
        thread = threading.Thread(target=lambda: reply.append(receive()))
        thread.start()
        times = [time.monotonic()]
        while thread.is_alive():
            other.ask(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
            times.append(time.monotonic())
        thread.join()
    pauses = [later - earlier for earlier, later in pairwise(times)]
    (answer,) = reply
    codes = {each.error_code for each in answer.responses[0].partition_responses}
    assert codes == {ErrorCode.NONE}
    assert len(pauses) > 20, "the request took a while, and pings were answered meanwhile"
    print(
        f"longest ping {max(pauses) * 1000:.0f} ms of {len(pauses)}, {times[-1] - times[0]:.1f} s"
    )
    assert max(pauses) < PING_S_MAX


def sized(size: int, sequence: int) -> bytes:
    """Return a batch of a producer whose record unpacks to ``size`` bytes."""
    record = Record(Offset(0), Millis(1), struct.pack(">i", sequence), bytes(size))
    by = Producer(4711, 0, sequence)
    return bytes(build_batch([record], compression=Compression.GZIP, producer=by))


@pytest.mark.parametrize("has_producer", [True, False])
def test_small_batches_do_not_overtake_one_in_a_worker(node: Node, has_producer: bool) -> None:
    topic = node.topic()
    sizes = [20 << 20, 10, 3 << 20, 10, 10]
    batches = [sized(size, number) for number, size in enumerate(sizes)]
    if not has_producer:
        batches = [without_producer(each) for each in batches]
    with node.connected() as client:
        sent = [client.send(ApiKey.PRODUCE, 9, node.request(topic, each)) for each in batches]
        replies = [client.receive(ApiKey.PRODUCE, 9, number) for number in sent]
    found = [reply.responses[0].partition_responses[0] for reply in replies]
    assert [each.error_code for each in found] == [0] * len(sizes)
    assert [each.base_offset for each in found] == list(range(len(sizes)))


def without_producer(batch: bytes) -> bytes:
    header = read_header(batch)._replace(producer_id=-1, producer_epoch=-1, base_sequence=-1)
    return bytes(seal_batch(header, batch[61:]))
