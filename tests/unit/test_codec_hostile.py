"""Malformed bytes are rejected with a fault, at little cost.

The numbers are rows of the catalogue of bad inputs: what the wire can carry that no client sends.
"""

import tracemalloc
from collections.abc import Callable

import pytest

from ottla.protocol.codec import decode, decode_prefix, encode
from ottla.protocol.codec.primitives import TAGS_MAX, read_uvarint, uvarint
from ottla.protocol.faults import ProtocolFault, UnsupportedVersion
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.schema import Message


def refused(struct: type[Message], version: int, data: bytes, match: str) -> None:
    with pytest.raises(ProtocolFault, match=match):
        decode(struct, version, data)


def memory_peak(work: Callable[[], object]) -> int:
    """The most bytes that were allocated at once while ``work`` ran."""
    work()  # compiles the codec, which is no part of the cost
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# -- 7: bytes behind the last field ------------------------------------------


@pytest.mark.parametrize("version", [0, 4])
def test_frame_longer_than_its_content_is_rejected(version: int) -> None:
    data = encode(FindCoordinatorRequest(), version)
    refused(FindCoordinatorRequest, version, data + b"\0", "1 bytes behind the last field")


def test_every_truncated_frame_is_rejected() -> None:
    request = FindCoordinatorRequest(key="group", coordinator_keys=["a", "b"])
    for version in range(7):
        data = encode(request, version)
        for length in range(len(data)):
            with pytest.raises(ProtocolFault):
                decode(FindCoordinatorRequest, version, data[:length])


def test_unknown_version_has_its_own_error() -> None:
    for version in (-1, 7):
        with pytest.raises(UnsupportedVersion):
            decode(FindCoordinatorRequest, version, b"")


# -- 13-15: arrays -----------------------------------------------------------

HUGE_COMPACT = uvarint(2**32 - 2)
HUGE_LEGACY = (2**31 - 1).to_bytes(4)


@pytest.mark.parametrize(
    ("struct", "version", "data"),
    [
        (MetadataRequest, 9, HUGE_COMPACT + b"\0" * 20),
        (MetadataRequest, 1, HUGE_LEGACY + b"\0" * 20),
        (OffsetFetchRequest, 2, b"\0\0" + HUGE_LEGACY + b"\0" * 8),
        (FindCoordinatorRequest, 4, b"\0" + HUGE_COMPACT + b"\0" * 8),
        # an array of integers and one of UUIDs, which are read at one go
        (MetadataResponse, 0, b"\0\0\0\0" + HUGE_LEGACY),
        (BrokerHeartbeatRequest, 1, bytes(4 + 8 + 8 + 2) + b"\1\0\5" + HUGE_COMPACT),
    ],
)
def test_array_longer_than_the_frame_is_rejected_before_allocation(
    struct: type[Message], version: int, data: bytes
) -> None:
    def attempt() -> None:
        refused(struct, version, data, "length|bytes remain")

    assert memory_peak(attempt) < 50_000


def test_array_of_more_than_a_million_elements_is_rejected() -> None:
    count = 1_000_001
    data = count.to_bytes(4) + b"\0\0" * count
    refused(MetadataRequest, 1, data, "length 1000001 where 1000000 are allowed")


def test_negative_array_length_is_rejected() -> None:
    refused(MetadataRequest, 1, (-5).to_bytes(4, signed=True), "length -5")


def test_array_count_is_checked_against_minimal_element_size() -> None:
    # A partition of OffsetFetch v2 takes 4 bytes: 3 of them do not fit in 11.
    data = b"\0\0" + (1).to_bytes(4) + b"\0\0" + (3).to_bytes(4) + bytes(11)
    refused(OffsetFetchRequest, 2, data, "partition_indexes: length 3 where 11 bytes remain")


def test_nested_arrays_stay_within_the_frame() -> None:
    """A thousand topics, each claiming as many partitions as bytes remain."""
    topic = b"\0\0" + (250_000).to_bytes(4)
    data = b"\0\0" + (1000).to_bytes(4) + topic + bytes(1_000_000)

    def attempt() -> None:
        refused(OffsetFetchRequest, 2, data, "OffsetFetchRequest v2")

    # The integers are really there, so this is the price of a million bytes of them.
    assert memory_peak(attempt) < 20 * len(data)


@pytest.mark.parametrize("count", [10_000, 40_000])
def test_decoding_memory_is_proportional_to_the_frame(count: int) -> None:
    """The most objects that a byte can buy: topics of two bytes, and empty strings of one."""
    topics = uvarint(count + 1) + b"\1\0" * count + b"\0" * 4
    strings = b"\0" + uvarint(count + 1) + b"\1" * count + b"\0"
    for struct, version, data in (
        (MetadataRequest, 9, topics),
        (FindCoordinatorRequest, 4, strings),
    ):

        def attempt(
            struct: type[Message] = struct, version: int = version, data: bytes = data
        ) -> None:
            decode(struct, version, data)

        assert memory_peak(attempt) < 100 * len(data)


# -- 16: varints -------------------------------------------------------------


@pytest.mark.parametrize("data", [b"\x80" * 5 + b"\1", b"\xff" * 4 + b"\x1f", b"\xff" * 9])
def test_varint_of_more_than_32_bits_is_rejected(data: bytes) -> None:
    with pytest.raises(ProtocolFault, match="varint"):
        read_uvarint(data, 0)
    refused(MetadataRequest, 9, data + bytes(10), "varint")


def test_largest_varint_is_read() -> None:
    assert read_uvarint(uvarint(2**32 - 1), 0) == (2**32 - 1, 5)


# -- 17, 18: strings, bytes, null --------------------------------------------


@pytest.mark.parametrize(
    ("struct", "version", "data", "match"),
    [
        (FindCoordinatorRequest, 0, b"\0\5abc", "key: length 5 where 3 bytes remain"),
        (FindCoordinatorRequest, 0, b"\xff\xfe", "key: length -2"),
        (FindCoordinatorRequest, 0, b"\xff\xff", "key: null"),
        (FindCoordinatorRequest, 3, b"\6abc", "key: length 5 where 3 bytes remain"),
        (FindCoordinatorRequest, 3, b"\0\0\0", "key: null"),
        (FindCoordinatorRequest, 3, uvarint(0x8001) + bytes(0x8010), "string of 32768 bytes"),
        (SaslAuthenticateRequest, 0, b"\0\0\0\5abc", "auth_bytes: length 5"),
        (SaslAuthenticateRequest, 0, b"\xff\xff\xff\xff", "auth_bytes: null"),
        (SaslAuthenticateRequest, 0, b"\xff\xff\xff\xfe", "auth_bytes: length -2"),
        (SaslAuthenticateRequest, 2, b"\0\0", "auth_bytes: null"),
        (MetadataRequest, 0, b"\xff\xff\xff\xff", "topics: null"),
        (FindCoordinatorRequest, 4, b"\0\0\0", "coordinator_keys: null"),
        (OffsetFetchRequest, 2, b"\0\0\xff\xff\xff\xfe", "topics: length -2"),
        (ProduceRequest, 3, b"\xff\xfe" + bytes(10), "transactional_id: length -2"),
    ],
)
def test_invalid_length_is_rejected(
    struct: type[Message], version: int, data: bytes, match: str
) -> None:
    refused(struct, version, data, match)


def test_longest_string_is_accepted() -> None:
    request = FindCoordinatorRequest(key="x" * 0x7FFF)
    for version in (0, 3):
        assert decode(FindCoordinatorRequest, version, encode(request, version)) == request


@pytest.mark.parametrize("text", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80"])
def test_string_with_invalid_utf8_is_rejected(text: bytes) -> None:
    refused(FindCoordinatorRequest, 0, len(text).to_bytes(2) + text, "not UTF-8")
    refused(FindCoordinatorRequest, 3, uvarint(len(text) + 1) + text + b"\0\0", "not UTF-8")


def test_null_struct_is_accepted_only_if_nullable() -> None:
    data = encode(DescribeTopicPartitionsRequest(cursor=None), 0)
    assert decode(DescribeTopicPartitionsRequest, 0, data).cursor is None


# -- 19: tagged fields -------------------------------------------------------

NO_TAGS = encode(ApiVersionsRequest(), 3)[:-1]


def with_tags(*tags: tuple[int, bytes], count: int | None = None) -> bytes:
    pieces = [uvarint(len(tags) if count is None else count)]
    pieces += [uvarint(tag) + uvarint(len(value)) + value for tag, value in tags]
    return NO_TAGS + b"".join(pieces)


def test_unknown_tags_are_skipped() -> None:
    data = with_tags((0, b""), (3, b"abc"), (2**32 - 1, b"x" * 200))
    assert decode(ApiVersionsRequest, 3, data) == ApiVersionsRequest()
    most = with_tags(*((number, b"") for number in range(10_000)))  # Kafka's limit since 4.4
    assert decode(ApiVersionsRequest, 3, most) == ApiVersionsRequest()


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (with_tags((3, b"a"), (3, b"b")), "tag 3 after tag 3"),
        (with_tags((3, b"a"), (2, b"b")), "tag 2 after tag 3"),
        (with_tags((3, b"a"))[:-1], "tag 3 of 1 bytes where 0 remain"),
        (NO_TAGS + b"\1\0" + uvarint(2**32 - 1) + b"abc", "tag 0 of 4294967295 bytes"),
        (with_tags((1, b""), count=2), "2 tagged fields in 2 bytes"),
        (NO_TAGS + uvarint(2**32 - 1), "tagged fields in 0 bytes"),
        (with_tags(*((n, b"") for n in range(TAGS_MAX + 1))), f"{TAGS_MAX + 1} tagged fields"),
        (NO_TAGS + uvarint(1_000_000) + b"\0\0" * 1_000_000, "1000000 tagged fields"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_tags_are_rejected(data: bytes, match: str) -> None:
    refused(ApiVersionsRequest, 3, data, match)


FETCH = encode(FetchRequest(), 12)[:-1]


@pytest.mark.parametrize(
    ("tag", "match"),
    [
        (b"\0\3\2kx", "ends at byte"),  # a string of one, a byte too many
        (b"\0\1\2kx", "ends at byte"),  # a string of one in a field of one
        (b"\0\2\7k", "length 6"),
        (b"\0\0", "ends within a field|ends at byte"),
    ],
)
def test_known_tag_must_fill_its_size(tag: bytes, match: str) -> None:
    assert decode(FetchRequest, 12, FETCH + b"\1\0\2\2k").cluster_id == "k"
    refused(FetchRequest, 12, FETCH + b"\1" + tag, match)


def test_duplicate_tag_is_rejected() -> None:
    refused(FetchRequest, 12, FETCH + b"\2\0\2\2k\0\2\2j", "tag 0 after tag 0")


def test_unknown_tags_beside_known_ones_are_skipped() -> None:
    data = FETCH + b"\2\0\2\2k\x63\3abc"
    assert decode(FetchRequest, 12, data).cluster_id == "k"


def test_decode_prefix_is_bounded_by_its_buffer() -> None:
    data = encode(FindCoordinatorRequest(key="abc"), 0)
    assert decode_prefix(FindCoordinatorRequest, 0, data + b"rest")[1] == len(data)
    with pytest.raises(ProtocolFault):
        decode_prefix(FindCoordinatorRequest, 0, data, len(data))
