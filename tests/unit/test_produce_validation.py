"""The rules for produced records; where Kafka's validator was asked, this is what it said."""

import pytest

from ottla.api.produce.record_validation import (
    RECORD_ERRORS_MAX,
    UNPACKED_BYTES_MAX,
    RecordRules,
    RecordsRejected,
    TimestampsRejected,
    rules_of,
    take_batch,
    validate_batch,
)
from ottla.api.produce.schema_rules import SchemaRules
from ottla.config.generated import TopicConfig
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import (
    CorruptBatch,
    InvalidRecord,
    RecordTooLarge,
    UnsupportedCompression,
)
from ottla.protocol.records.batch import (
    HEADER_BYTES,
    Compression,
    is_crc_valid,
    read_header,
)
from ottla.protocol.records.compression import compress
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import Producer, build_batch, encode_records, seal_batch
from ottla.protocol.types import Millis, Offset

NOW = Millis(1_700_000_000_000)
HOUR = 3_600_000
PLAIN = rules_of(TopicConfig())
CODECS = list(Compression)


def records_of(*timestamps: int, key: bytes | None = b"k") -> list[Record]:
    return [
        Record(Offset(index), Millis(at), key, b"value")
        for index, at in enumerate(timestamps or (NOW,))
    ]


def batch_of(*timestamps: int, key: bytes | None = b"k", **fields) -> memoryview:
    return memoryview(build_batch(records_of(*timestamps, key=key), **fields))


def checked(batch: memoryview, **changes) -> memoryview | bytearray:
    return validate_batch(batch, PLAIN._replace(**changes), NOW)


def with_header(batch: memoryview, **changes) -> memoryview:
    """Change a header and give the batch a CRC for it."""
    header = read_header(batch)._replace(**changes)
    return memoryview(seal_batch(header, bytes(batch[HEADER_BYTES:])))


# -- the rules ---------------------------------------------------------------


def test_rules_follow_from_the_topics_configuration() -> None:
    assert RecordRules(1_048_588, False, False, 2**63 - 1, HOUR, None, None) == PLAIN
    topic = TopicConfig(
        max_message_bytes=5,
        cleanup_policy=("compact", "delete"),
        message_timestamp_type="LogAppendTime",
        message_timestamp_before_max_ms=7,
        message_timestamp_after_max_ms=8,
        compression_type="zstd",
        compression_zstd_level=11,
    )
    assert rules_of(topic) == RecordRules(5, True, True, 7, 8, Compression.ZSTD, 11)


@pytest.mark.parametrize(
    ("name", "codec", "level"),
    [
        ("uncompressed", Compression.NONE, None),
        ("gzip", Compression.GZIP, -1),
        ("snappy", Compression.SNAPPY, None),
        ("lz4", Compression.LZ4, 9),
    ],
)
def test_a_topic_names_its_codec(name: str, codec: Compression, level: int | None) -> None:
    rules = rules_of(TopicConfig(compression_type=name))
    assert (rules.codec, rules.level) == (codec, level)


def test_a_topic_has_schema_rules_only_where_it_validates() -> None:
    assert rules_of(TopicConfig(confluent_value_subject_name_strategy="x")).schemas is None
    topic = TopicConfig(
        confluent_key_schema_validation=True,
        confluent_key_subject_name_strategy="io.confluent.x.RecordNameStrategy",
        ottla_schema_validation="payload",
        ottla_schema_validation_mode="dead-letter",
        ottla_schema_validation_dead_letters="dlq.x",
    )
    assert rules_of(topic).schemas == SchemaRules("RecordNameStrategy", None, True, "dlq.x")


# -- one batch ---------------------------------------------------------------


def test_one_batch_is_taken_as_it_is() -> None:
    batch = batch_of()
    assert take_batch(batch, 3) is batch


@pytest.mark.parametrize("length", [0, 1, 11, 12, 16, 17, 60])
def test_incomplete_batch_is_rejected(length: int) -> None:
    with pytest.raises(InvalidRecord, match="complete"):
        take_batch(batch_of()[:length], 9)
    with pytest.raises(InvalidRecord, match="complete"):
        take_batch(None, 9)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused(magic: int) -> None:
    batch = batch_of()
    batch[16] = magic
    with pytest.raises(InvalidRecord, match="format"):
        take_batch(batch, 9)


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_formats_that_nobody_knows_are_corrupt(magic: int) -> None:
    batch = batch_of()
    batch[16] = magic
    with pytest.raises(CorruptBatch):
        take_batch(batch, 9)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13])
def test_impossible_lengths_are_corrupt(length: int) -> None:
    batch = batch_of()
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch):
        take_batch(batch, 9)


def test_a_length_that_cuts_the_batch_short_is_found_out_by_its_crc() -> None:
    batch = batch_of()
    batch[8:12] = (len(batch) - 13).to_bytes(4, "big")
    with pytest.raises(CorruptBatch):
        checked(take_batch(batch, 9))


def test_two_batches_are_one_too_many_and_half_of_one_is_left_out() -> None:
    one = bytes(batch_of())
    with pytest.raises(InvalidRecord, match="several"):
        take_batch(memoryview(one + one), 9)
    for extra in (b"x", one[:11], one[:40], one[:-1]):
        assert take_batch(memoryview(one + extra), 9) == one
    with pytest.raises(CorruptBatch):
        take_batch(memoryview(one + bytes(20)), 9)


def test_zstd_came_with_version_7() -> None:
    batch = batch_of(compression=Compression.ZSTD)
    with pytest.raises(UnsupportedCompression):
        take_batch(batch, 6)
    assert take_batch(batch, 7) is batch
    assert take_batch(batch_of(compression=Compression.LZ4), 3)


# -- records -----------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_a_good_batch_stays_as_it_is(codec: Compression) -> None:
    batch = batch_of(NOW, NOW - 5, compression=codec)
    before = bytes(batch)
    assert checked(batch) is batch
    assert batch == before


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "lie",
    [
        {"records_count": 1, "last_offset_delta": 0},
        {"records_count": 3, "last_offset_delta": 2},
        {"records_count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
        {"records_count": 0},
        {"records_count": -1},
    ],
)
def test_a_count_that_the_records_contradict_is_refused(codec: Compression, lie) -> None:
    with pytest.raises(InvalidRecord):
        checked(with_header(batch_of(NOW, NOW, compression=codec), **lie))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("deltas", [(1, 2), (0, 2), (0, 0), (1, 0)])
def test_offset_deltas_count_from_0(codec: Compression, deltas: tuple[int, ...]) -> None:
    records = [Record(Offset(each), NOW, b"k", b"v") for each in deltas]
    region = bytes(encode_records(records, 0, NOW))
    header = read_header(batch_of(NOW, NOW, compression=codec))
    with pytest.raises(InvalidRecord, match="offset delta"):
        checked(memoryview(seal_batch(header, compress(codec, region))))


def test_the_largest_batch_is_max_message_bytes() -> None:
    batch = batch_of()
    assert checked(batch, batch_bytes_max=len(batch))
    with pytest.raises(RecordTooLarge):
        checked(batch, batch_bytes_max=len(batch) - 1)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_a_bomb_unpacks_to_the_bound_and_no_further(codec: Compression) -> None:
    header = read_header(batch_of(compression=codec))
    bomb = seal_batch(header, compress(codec, bytes(UNPACKED_BYTES_MAX + 1)))
    assert len(bomb) < 1 << 20
    with pytest.raises(InvalidRecord, match="more than"):
        checked(memoryview(bomb))


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("change", ["cut", "trailing", "noise", "twice"])
def test_packed_bytes_that_do_not_unpack_are_refused(codec: Compression, change: str) -> None:
    batch = batch_of(NOW, NOW, compression=codec)
    packed = bytes(batch[HEADER_BYTES:])
    bad = {
        "cut": packed[:-1],
        "trailing": packed + b"\0",
        "noise": b"\xa5" * len(packed),
        "twice": bytes(compress(codec, packed)),
    }
    with pytest.raises(InvalidRecord):
        checked(memoryview(seal_batch(read_header(batch), bad[change])))


@pytest.mark.parametrize("number", [5, 6, 7])
def test_codecs_that_nobody_knows_are_refused(number: int) -> None:
    with pytest.raises(InvalidRecord, match="codec"):
        checked(with_header(batch_of(), attributes=number))


# -- damage before everything ------------------------------------------------


def damaged(batch: memoryview) -> memoryview:
    batch[17] ^= 1
    return batch


@pytest.mark.parametrize(
    ("batch", "changes"),
    [
        (batch_of(key=None), {"is_compacted": True}),
        (batch_of(NOW + 2 * HOUR), {}),
        (with_header(batch_of(), records_count=2, last_offset_delta=1), {}),
        (with_header(batch_of(), max_timestamp=Millis(NOW + 1)), {}),
        (batch_of(), {"codec": Compression.GZIP}),
    ],
)
def test_damaged_bytes_are_called_that_and_get_no_new_crc(batch: memoryview, changes) -> None:
    with pytest.raises(CorruptBatch):
        checked(damaged(memoryview(bytearray(batch))), **changes)


@pytest.mark.parametrize(
    "lie",
    [
        {"base_offset": Offset(1)},
        {"attributes": 0x20},
        {"producer_id": 7, "producer_epoch": 0},
        {"last_offset_delta": 5},
        {"attributes": 0x10},
    ],
)
def test_what_no_producer_writes_takes_precedence_over_the_records(lie) -> None:
    with pytest.raises(InvalidRecord) as reply:
        checked(with_header(batch_of(NOW + 2 * HOUR), **lie))
    assert not isinstance(reply.value, RecordsRejected)


# -- keys and timestamps -----------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_a_compacted_topic_takes_no_record_without_a_key(codec: Compression) -> None:
    records = [
        Record(Offset(index), NOW, key, b"v") for index, key in enumerate([b"k", None, b"", None])
    ]
    batch = memoryview(build_batch(records, compression=codec))
    assert checked(batch)
    with pytest.raises(RecordsRejected, match="2 record errors in total") as reply:
        checked(batch, is_compacted=True)
    assert reply.value.code is ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in reply.value.errors] == [1, 3]
    assert "key" in reply.value.errors[0].message


def test_not_every_bad_record_of_many_is_named() -> None:
    batch = batch_of(*[NOW] * (RECORD_ERRORS_MAX + 7), key=None)
    with pytest.raises(RecordsRejected, match=str(RECORD_ERRORS_MAX + 7)) as reply:
        checked(batch, is_compacted=True)
    assert len(reply.value.errors) == RECORD_ERRORS_MAX


@pytest.mark.parametrize("codec", CODECS)
def test_timestamps_stay_near_the_clock(codec: Compression) -> None:
    limits = {"before_ms_max": 1000, "after_ms_max": 2000}
    edge = batch_of(NOW - 1000, NOW + 2000, NOW, compression=codec)
    assert checked(edge, **limits)
    with pytest.raises(TimestampsRejected):
        checked(batch_of(NOW, NOW - 1001, compression=codec), **limits)
    beyond = batch_of(NOW - 1001, NOW, NOW + 2001, -1, compression=codec)
    with pytest.raises(TimestampsRejected) as reply:
        checked(beyond, **limits)
    assert reply.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in reply.value.errors] == [0, 2]
    assert str(NOW - 1001) in reply.value.errors[0].message


def test_no_timestamp_is_a_timestamp_and_the_past_is_open_by_default() -> None:
    assert checked(batch_of(-1, -1), before_ms_max=1000)
    assert checked(batch_of(-5, NOW))
    with pytest.raises(TimestampsRejected):
        checked(batch_of(NOW + HOUR + 1))
    with pytest.raises(TimestampsRejected):
        checked(batch_of(253_402_300_800_000))  # the year 10000


def test_a_bad_timestamp_names_the_error_also_where_keys_are_missing() -> None:
    records = [Record(Offset(0), NOW, None, b""), Record(Offset(1), Millis(1), b"k", b"")]
    with pytest.raises(TimestampsRejected) as reply:
        checked(memoryview(build_batch(records)), is_compacted=True, before_ms_max=1000)
    assert [each.batch_index for each in reply.value.errors] == [0, 1]


def test_in_log_append_time_the_producers_clock_does_not_matter() -> None:
    batch = batch_of(NOW + 99 * HOUR, 1)
    lying = with_header(batch, max_timestamp=Millis(3))
    before = bytes(lying)
    assert checked(lying, is_log_append_time=True, before_ms_max=5) is lying
    assert lying == before, "the log writes the time"


def test_a_producer_must_not_say_log_append_time() -> None:
    with pytest.raises(TimestampsRejected) as reply:
        checked(batch_of(NOW, NOW, append_time=NOW), is_log_append_time=True)
    assert [each.batch_index for each in reply.value.errors] == [0, 1]
    with pytest.raises(TimestampsRejected):
        checked(batch_of(NOW, append_time=-1))
    with pytest.raises(TimestampsRejected):
        checked(batch_of(NOW, append_time=NOW + 2 * HOUR))


def test_log_append_time_is_taken_back_where_the_topic_has_create_time() -> None:
    kept = checked(batch_of(NOW - 9, NOW, append_time=NOW + 3))
    header = read_header(kept)
    assert not header.is_log_append_time and header.max_timestamp == NOW + 3
    assert is_crc_valid(kept, 0, header)
    packed = checked(batch_of(NOW - 9, NOW, append_time=NOW + 3), codec=Compression.GZIP)
    assert [each.timestamp for each in read_records(packed)] == [NOW + 3, NOW + 3]
    assert not read_header(packed).is_log_append_time


@pytest.mark.parametrize(("newest", "reply"), [(NOW, NOW), (-5, -1)])
def test_the_maximum_timestamp_is_that_of_the_records(newest: int, reply: int) -> None:
    lying = with_header(batch_of(newest, newest - 9), max_timestamp=Millis(NOW + 77))
    header = read_header(checked(lying))
    assert header.max_timestamp == reply and is_crc_valid(lying, 0, header)
    honest = batch_of(newest, newest - 9)
    assert read_header(checked(honest)).max_timestamp == reply


# -- the topic's codec -------------------------------------------------------


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", CODECS)
@pytest.mark.parametrize("said", [1, NOW])
def test_records_are_packed_as_the_topic_asks(
    source: Compression, target: Compression, said: int
) -> None:
    stamps = (NOW - 1, NOW, NOW - 50)
    batch = batch_of(*stamps, compression=source, producer=Producer(7, 3, 40))
    batch = with_header(batch, max_timestamp=Millis(said))
    packed = checked(batch, codec=target)
    header = read_header(packed)
    assert header.compression is target and is_crc_valid(packed, 0, header)
    assert read_records(packed) == records_of(*stamps)
    assert header[9:13] == (7, 3, 40, 3) and header.max_timestamp == NOW
    assert (packed is batch) == (source is target)


def test_the_level_is_the_topics() -> None:
    values = b"".join(b"%d-%d;" % (i, i * i) for i in range(9000))
    batch = memoryview(build_batch([Record(Offset(0), NOW, b"k", values)]))
    low, high = (len(checked(batch, codec=Compression.ZSTD, level=each)) for each in (1, 19))
    assert high < low
