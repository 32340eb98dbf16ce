"""Invalid records are rejected by a running node, one test per row of docs/faults.md.

After each: the right code, nothing appended, and the node goes on serving the same connection.
"""

import resource
import struct
import time
from collections.abc import Iterator

import pytest
from produce_node import Node, running_node

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.records.batch import HEADER_BYTES, Compression, read_header
from ottla.protocol.records.compression import compress
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import Producer, build_batch, encode_records, seal_batch, varint
from ottla.protocol.types import Millis, Offset

PACKED = [each for each in Compression if each is not Compression.NONE]
CORRUPT, INVALID = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD
RSS_GROWTH_MAX_KIB = 400 * 1024


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running_node() as found:
        yield found


def now() -> Millis:
    return Millis(int(time.time() * 1000))


def good(*values: bytes, **fields) -> bytearray:
    stamp = now()
    records = [Record(Offset(i), stamp, b"k", v) for i, v in enumerate(values or (b"v",))]
    return build_batch(records, **fields)


def resealed(batch: bytearray, packed: bytes | None = None, **changes) -> bytearray:
    """Change header or records of a batch, and give it a CRC for that."""
    header = read_header(batch)._replace(**changes)
    return seal_batch(header, bytes(batch[HEADER_BYTES:]) if packed is None else packed)


def refuses(node: Node, batch: bytes | None, version: int = 9, **config: str) -> ErrorCode:
    """Return how a batch was refused, having seen that nothing came of it."""
    topic = node.topic(**config)
    outcome = node.produce(topic, batch, version)
    assert outcome.base_offset == -1
    assert node.stored(topic) == b""
    assert node.produce(topic, good()).base_offset == 0, "the node goes on"
    return ErrorCode(outcome.error_code)


# -- 29 to 31: the batch -----------------------------------------------------


@pytest.mark.parametrize("at", [17, 21, 40, 60, 65, -1])
def test_29_wrong_crc_is_corrupt(node: Node, at: int) -> None:
    batch = good()
    batch[at] ^= 0x40
    assert refuses(node, batch) is CORRUPT


@pytest.mark.parametrize(
    ("magic", "code"), [(0, INVALID), (1, INVALID), (3, CORRUPT), (255, CORRUPT)]
)
def test_30_other_message_formats_are_rejected(node: Node, magic: int, code: ErrorCode) -> None:
    batch = good()
    batch[16] = magic
    assert refuses(node, batch) is code


@pytest.mark.parametrize("more", [1, 7, 1000])
def test_31_batch_length_beyond_the_bytes_is_rejected(node: Node, more: int) -> None:
    batch = good()
    struct.pack_into(">i", batch, 8, len(batch) - 12 + more)
    assert refuses(node, batch) is INVALID


@pytest.mark.parametrize("length", [-1, 0, 13, 14, 48, 49, 55])
def test_31_batch_length_below_the_bytes_is_corrupt(node: Node, length: int) -> None:
    batch = good()
    struct.pack_into(">i", batch, 8, length)
    assert refuses(node, batch) is CORRUPT


def test_31_null_empty_and_truncated_records_are_rejected(node: Node) -> None:
    assert refuses(node, None) is INVALID
    assert refuses(node, b"") is INVALID
    assert refuses(node, good()[:40]) is INVALID


# -- 32 and 33: counts -------------------------------------------------------


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize(
    "lie",
    [
        {"records_count": 1, "last_offset_delta": 0},
        {"records_count": 3, "last_offset_delta": 2},
        {"records_count": 3},
        {"last_offset_delta": 5},
        {"last_offset_delta": -1},
        {"records_count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
        {"records_count": -1, "last_offset_delta": -2},
        {"base_offset": Offset(1)},
    ],
)
def test_32_wrong_record_counts_are_rejected(node: Node, codec: Compression, lie) -> None:
    batch = resealed(good(b"a", b"b", compression=codec), **lie)
    assert refuses(node, batch) is INVALID


@pytest.mark.parametrize("codec", Compression)
def test_32_offset_deltas_must_count_from_0(node: Node, codec: Compression) -> None:
    records = [Record(Offset(each), now(), b"k", b"v") for each in (0, 2)]
    region = bytes(encode_records(records, 0, records[0].timestamp))
    batch = resealed(good(b"a", b"b", compression=codec), bytes(compress(codec, region)))
    assert refuses(node, batch) is INVALID


def test_33_several_batches_per_partition_are_rejected(node: Node) -> None:
    assert refuses(node, good() + good()) is INVALID


# -- 34 to 36: codecs --------------------------------------------------------


@pytest.mark.parametrize("number", [5, 6, 7])
def test_34_unknown_codecs_are_rejected(node: Node, number: int) -> None:
    assert refuses(node, resealed(good(), attributes=number)) is INVALID


@pytest.mark.parametrize("codec", PACKED)
def test_35_decompression_bomb_is_rejected_at_little_cost(node: Node, codec: Compression) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = (70 if codec is not Compression.SNAPPY else 15) << 20
    bomb = resealed(good(compression=codec), bytes(compress(codec, bytes(size))))
    assert len(bomb) < 1_048_588, "small enough to be taken"
    began = time.monotonic()
    assert refuses(node, bomb) is INVALID
    assert time.monotonic() - began < 30
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < RSS_GROWTH_MAX_KIB


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("change", ["cut", "behind", "noise", "twice", "empty"])
def test_35_invalid_compressed_streams_are_rejected(
    node: Node, codec: Compression, change: str
) -> None:
    batch = good(b"a" * 100, b"b" * 100, compression=codec)
    packed = bytes(batch[HEADER_BYTES:])
    bad = {
        "cut": packed[: len(packed) // 2],
        "behind": packed + b"garbage",
        "noise": b"\xa5" * len(packed),
        "twice": bytes(compress(codec, packed)),
        "empty": b"",
    }
    assert refuses(node, resealed(batch, bad[change])) is INVALID


@pytest.mark.parametrize("version", [3, 6, 7])
def test_36_zstd_is_rejected_in_old_versions(node: Node, version: int) -> None:
    batch = good(compression=Compression.ZSTD)
    if version < 7:
        assert refuses(node, batch, version) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    else:
        assert node.code(node.topic(), batch, version) is ErrorCode.NONE


# -- 37 and 38: size and time ------------------------------------------------


def test_37_batch_above_max_message_bytes_is_rejected(node: Node) -> None:
    too_large = ErrorCode.MESSAGE_TOO_LARGE
    batch = good(b"x" * 2000)
    assert refuses(node, batch, max_message_bytes=str(len(batch) - 1)) is too_large
    assert node.code(node.topic(max_message_bytes=str(len(batch))), batch) is ErrorCode.NONE
    assert refuses(node, good(b"x" * (1 << 20))) is too_large, "1 MiB and its header by default"
    # Small when it comes, too large once the topic's codec has been at it.
    small = good(b"x" * 5000, compression=Compression.GZIP)
    topic = {"max_message_bytes": "1000", "compression_type": "uncompressed"}
    assert len(small) < 1000
    assert refuses(node, small, **topic) is too_large


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_38_timestamps_out_of_bounds_are_rejected(node: Node, codec: Compression) -> None:
    late = ErrorCode.INVALID_TIMESTAMP

    def at(stamp: int) -> bytearray:
        records = [Record(Offset(0), now(), b"k", b""), Record(Offset(1), Millis(stamp), b"k", b"")]
        return build_batch(records, compression=codec)

    topic = node.topic(message_timestamp_before_max_ms="60000")
    for stamp in (253_402_300_800_000, now() + 3_700_000, now() - 61_000, -5, -(2**62)):
        outcome = node.produce(topic, at(stamp))
        assert outcome.error_code == late
        assert [each.batch_index for each in outcome.record_errors] == [1]
        assert outcome.error_message
    assert node.stored(topic) == b""
    for stamp in (-1, now() + 3_000_000, now() - 50_000):
        assert node.code(topic, at(stamp)) is ErrorCode.NONE


# -- 39 to 41: records -------------------------------------------------------


def record_with(headers: bytes) -> bytes:
    body = b"\0" + varint(0) + varint(0) + varint(1) + b"k" + varint(1) + b"v" + headers
    return varint(len(body)) + body


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize(
    "headers",
    [
        varint(2**31 - 1),
        varint(-1),
        varint(1) + varint(-1) + varint(1) + b"v",  # a key that is null
        varint(1) + varint(100) + b"k",
        varint(2) + varint(1) + b"h" + varint(-1),  # one is missing
        b"\xff\xff\xff\xff\xff\xff\x01",
    ],
)
def test_39_invalid_headers_are_rejected(node: Node, codec: Compression, headers: bytes) -> None:
    packed = bytes(compress(codec, record_with(headers)))
    assert refuses(node, resealed(good(compression=codec), packed)) is INVALID


def test_39_header_with_null_value_is_accepted(node: Node) -> None:
    packed = record_with(varint(1) + varint(1) + b"h" + varint(-1))
    assert node.code(node.topic(), resealed(good(), packed)) is ErrorCode.NONE


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_40_null_key_in_a_compacted_topic_is_rejected(
    node: Node, codec: Compression, policy: str
) -> None:
    keys = [b"k", None, b"", None]
    records = [Record(Offset(i), now(), key, b"v") for i, key in enumerate(keys)]
    batch = build_batch(records, compression=codec)
    topic = node.topic(cleanup_policy=policy)
    outcome = node.produce(topic, batch)
    assert outcome.error_code == INVALID
    assert [each.batch_index for each in outcome.record_errors] == [1, 3]
    assert node.stored(topic) == b""
    assert node.code(node.topic(), batch) is ErrorCode.NONE


def test_41_control_batches_of_clients_are_rejected(node: Node) -> None:
    assert refuses(node, good(is_control=True)) is INVALID
    marker = good(is_control=True, is_transactional=True, producer=Producer(4000, 0, 0))
    assert node.code(node.topic(), marker) is not ErrorCode.NONE


# -- 42 and 43: producers ----------------------------------------------------


def sequenced(producer_id: int, sequence: int, epoch: int = 0, count: int = 1) -> bytearray:
    return good(*[b"v"] * count, producer=Producer(producer_id, epoch, sequence))


def new_producer(node: Node) -> int:
    request = InitProducerIdRequest(None, 0, -1, -1)
    response = node.client.ask(ApiKey.INIT_PRODUCER_ID, 4, request)
    assert response.error_code == 0
    return int(response.producer_id)


def test_42_wrong_sequences_and_epochs_are_rejected(node: Node) -> None:
    producer, topic = new_producer(node), node.topic()
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for sequence in range(6):
        assert node.produce(topic, sequenced(producer, sequence)).base_offset == sequence
    for sequence in range(1, 6):  # the last five are remembered
        again = node.produce(topic, sequenced(producer, sequence))
        assert (again.error_code, again.base_offset) == (0, sequence)
    assert node.code(topic, sequenced(producer, 0)) is out_of_order
    assert node.code(topic, sequenced(producer, 7)) is out_of_order, "a gap"
    assert node.code(topic, sequenced(producer, 5, count=2)) is out_of_order
    assert node.code(topic, sequenced(producer, 3, epoch=1)) is out_of_order
    assert node.code(topic, sequenced(producer, 0, epoch=1)) is ErrorCode.NONE
    assert node.code(topic, sequenced(producer, 6)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert node.code(topic, resealed(sequenced(producer, 1, 1), base_sequence=-1)) is INVALID
    assert len(node.records(topic)) == 7


def test_42_sequences_wrap_around(node: Node) -> None:
    producer, topic = new_producer(node), node.topic()
    last = 2**31 - 1
    assert node.code(topic, sequenced(producer, last - 1, count=3)) is ErrorCode.NONE
    assert node.produce(topic, sequenced(producer, last - 1, count=3)).base_offset == 0
    assert node.code(topic, sequenced(producer, 1)) is ErrorCode.NONE
    assert len(node.records(topic)) == 4


@pytest.mark.parametrize("version", [9, 11, 13])
def test_43_unverified_transactional_batch_is_not_appended(node: Node, version: int) -> None:
    batch = good(producer=Producer(new_producer(node), 0, 0), is_transactional=True)
    failed = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert refuses(node, batch, version) is failed, "without a transactional id"
    topic = node.topic()
    request = node.request(topic, batch)
    request.transactional_id = "t"
    response = node.client.ask(ApiKey.PRODUCE, version, request)
    assert response.responses[0].partition_responses[0].error_code != 0
    assert node.stored(topic) == b""


# -- 44: names ---------------------------------------------------------------

NAMES = ["", ".", "..", "a" * 250, "../../etc/x", "/etc/passwd", "nul\0", "😀", "a b", "a/b"]


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_44_invalid_topic_names_are_rejected(node: Node, name: str) -> None:
    assert node.code(name, good()) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request = CreateTopicsRequest([CreatableTopic(name, 1, 1)], 5000)
    (made,) = node.client.ask(ApiKey.CREATE_TOPICS, 7, request).topics
    assert made.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    asked = MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    (reply,) = node.client.ask(ApiKey.METADATA, 9, asked).topics
    assert reply.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_44_colliding_topic_names_are_rejected(node: Node) -> None:
    def create(name: str) -> int:
        request = CreateTopicsRequest([CreatableTopic(name, 1, 1)], 5000)
        return int(node.client.ask(ApiKey.CREATE_TOPICS, 7, request).topics[0].error_code)

    assert create("col.li_de") == ErrorCode.NONE
    assert create("col_li.de") == ErrorCode.INVALID_TOPIC_EXCEPTION


# -- all at once -------------------------------------------------------------


def test_valid_client_is_served_between_malformed_requests(node: Node) -> None:
    topic = node.topic()
    bad = good()
    bad[40] ^= 1
    fine = good(b"x" * 100, compression=Compression.GZIP)
    slowest = 0.0
    with node.connected() as other:
        for _ in range(200):
            sent = other.send(ApiKey.PRODUCE, 9, node.request(topic, bad))
            began = time.monotonic()
            assert node.code(topic, fine) is ErrorCode.NONE
            slowest = max(slowest, time.monotonic() - began)
            response = other.receive(ApiKey.PRODUCE, 9, sent)
            assert response.responses[0].partition_responses[0].error_code == CORRUPT
    assert len(node.records(topic)) == 200
    assert slowest < 1
