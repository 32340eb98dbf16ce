"""Validation of the records in a Produce request, before they are appended.

Pure; the counterpart of Kafka's ``LogValidator`` and of Kafka's checks of the request itself. The
log checks a batch as a whole (size, CRC, producer, no control batch); here are the rules that need
the records, or the topic's configuration:

    one batch   format 2, alone, whole; zstd only where the version may use it (KIP-110)
    records     as many as the header says, offset deltas 0, 1, 2 .., nothing left over
    key         not null in a compacted topic
    timestamp   within ``message.timestamp.before.max.ms`` and ``.after.max.ms`` of the clock,
                -1 always; the topic says whether it is set by the producer
    header      the maximum timestamp is that of the records
    codec       that of the topic; compressed again where the producer used another
    size        of a record in a compressed batch: ``max.decompressed.message.bytes``

An uncompressed batch is read in place. A compressed one is decompressed, up to a limit, because
consumers and the cleaner have to read its records; frames that some of them cannot decompress are
rejected.

The log checks the CRC, once. If something is wrong or has to be changed, it is checked here first:
bytes that were damaged on the way are CORRUPT_MESSAGE, whatever else is wrong with them, and must
never get a new CRC.
"""

from struct import Struct
from typing import Final, NamedTuple

from ottla.api.produce.schema_rules import SchemaRules, schema_rules_of
from ottla.config.generated import TopicConfig
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    RecordTooLarge,
    UnsupportedCompression,
)
from ottla.protocol.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    BatchHeader,
    Compression,
    is_crc_valid,
    patch_crc,
    read_header,
)
from ottla.protocol.records.compression import check_readable, compress, unpack_pieces
from ottla.protocol.records.reader import read_records, unpack_region
from ottla.protocol.records.walker import (
    RECORD_SIZE_MAX,
    RecordsSummary,
    check_records,
    check_sizes,
    check_some,
    walk_spans,
)
from ottla.protocol.records.writer import encode_records, seal_batch
from ottla.protocol.types import NO_TIMESTAMP, Buffer, Millis
from ottla.storage.log.batch_checks import check_produced_header

# A batch of 1 MiB at a compression ratio of 64. Consumers and the cleaner decompress a whole batch,
# which has to fit into their memory.
UNPACKED_BYTES_MAX: Final = 64 << 20

# Record errors in the reply for one batch. A batch may have 150,000 records, and an error is longer
# than the record; to the client all records of the batch are rejected, listed or not.
RECORD_ERRORS_MAX: Final = 1000

ZSTD_VERSION_FIRST: Final = 7
"""The first version of Produce that may carry zstd."""

# Kafka's words: tests and clients compare them.
_REJECTED: Final = "One or more records have been rejected due to"

_LENGTH_AT: Final = 8
_CODEC_AT: Final = ATTRIBUTES_AT + 1  # the attributes' lower byte
_LENGTH_MIN: Final = 14  # of the shortest message in any format
_INT32: Final = Struct(">i")
_INT16: Final = Struct(">h")
_INT64: Final = Struct(">q")
_INT64_LOWEST: Final = -(2**63)
_INT64_HIGHEST: Final = 2**63 - 1
_CODECS: Final = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


class RecordRules(NamedTuple):
    """The rules of a topic for its records. ``codec`` is None where the producer chooses.

    ``schemas`` are those of schema validation, which `schema_checks.py` applies.
    """

    batch_bytes_max: int
    is_compacted: bool
    is_log_append_time: bool
    before_ms_max: int
    after_ms_max: int
    codec: Compression | None
    level: int | None
    record_bytes_max: int = RECORD_SIZE_MAX
    schemas: SchemaRules | None = None


def rules_of(config: TopicConfig) -> RecordRules:
    """Return the rules of a topic's configuration."""
    codec = _CODECS[config.compression_type]
    levels = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    return RecordRules(
        config.max_message_bytes,
        "compact" in config.cleanup_policy,
        config.message_timestamp_type == "LogAppendTime",
        config.message_timestamp_before_max_ms,
        config.message_timestamp_after_max_ms,
        codec,
        None if codec is None else levels.get(codec),
        config.max_decompressed_message_bytes,
        schema_rules_of(config),
    )


class RecordError(NamedTuple):
    """The error of one record; ``batch_index`` counts from 0."""

    batch_index: int
    message: str


class RecordsRejected(InvalidRecord):
    """A batch dropped for some of its records (KIP-467); the message is for the client."""

    def __init__(self, message: str, errors: list[RecordError]) -> None:
        super().__init__(message)
        self.errors = errors


class TimestampsRejected(InvalidTimestamp):
    """As `RecordsRejected`; at least one record has a timestamp that the topic rejects."""

    def __init__(self, message: str, errors: list[RecordError]) -> None:
        super().__init__(message)
        self.errors = errors


class SchemasUnavailable(RecordsRejected):
    """The topic validates schemas, and this broker has no registry."""

    code = ErrorCode.INVALID_CONFIG

    def __init__(self) -> None:
        super().__init__(
            "the topic has schema validation, and the leader of its partition serves no schema "
            "registry: set schema.registry.listeners on every broker",
            [],
        )


# -- the batch ---------------------------------------------------------------


def take_batch(records: memoryview | None, version: int) -> memoryview:
    """Return the one batch that a partition of a Produce request carries.

    An incomplete batch after it is ignored, as in Kafka.

    Raises:
        InvalidRecord: no batch, one of an old format, or several.
        CorruptBatch: an unknown format, or an impossible length.
        UnsupportedCompression: zstd in a version without it.
    """
    end = None if records is None else _batch_end(records, 0)
    if records is None or end is None:
        raise InvalidRecord("a partition without a complete batch")
    if records[MAGIC_AT] != MAGIC:
        raise InvalidRecord(f"message format {records[MAGIC_AT]}, Produce accepts {MAGIC}")
    if version < ZSTD_VERSION_FIRST and _is_zstd(records[:end]):
        raise UnsupportedCompression(f"zstd in version {version} of Produce")
    if end == len(records):
        return records
    if _batch_end(records, end) is not None:
        raise InvalidRecord("several batches for one partition")
    return records[:end]


def _is_zstd(batch: memoryview) -> bool:
    return len(batch) > _CODEC_AT and batch[_CODEC_AT] & CODEC_MASK == Compression.ZSTD


def _batch_end(records: memoryview, start: int) -> int | None:
    """Return where the batch at ``start`` ends; None if it is incomplete."""
    remaining = len(records) - start
    if remaining < LOG_OVERHEAD_BYTES:
        return None
    (length,) = _INT32.unpack_from(records, start + _LENGTH_AT)
    if length < _LENGTH_MIN:
        raise CorruptBatch(f"batch length {length}")
    if remaining <= MAGIC_AT:
        return None
    if records[start + MAGIC_AT] > MAGIC:
        raise CorruptBatch(f"message format {records[start + MAGIC_AT]}")
    end = start + LOG_OVERHEAD_BYTES + int(length)
    return end if end <= len(records) else None


# -- its records -------------------------------------------------------------


def validate_batch(
    batch: memoryview,
    rules: RecordRules,
    now: Millis,
    unpacked_bytes_max: int = UNPACKED_BYTES_MAX,
) -> memoryview | bytearray:
    """Check a batch from `take_batch` by its topic's rules; return the batch to append.

    That is ``batch`` itself, its header corrected in place if needed, or a new one where the topic
    has another codec. ``now`` is the broker's wall clock.

    Raises:
        RecordTooLarge, CorruptBatch. InvalidRecord: the records contradict the header or
            themselves. RecordsRejected, TimestampsRejected: a rule of the topic forbids some.
        UnpacksToMore: the records take more than ``unpacked_bytes_max``.
    """
    header = _header_within(batch, rules)
    codec, base = header.attributes & (CODEC_MASK | LOG_APPEND_TIME), header.base_timestamp
    region: Buffer = batch[HEADER_BYTES:]
    try:
        if codec & CODEC_MASK:
            check_readable(header.compression, region)
            region = unpack_region(batch, 0, header, bytes_max=unpacked_bytes_max)
        summary = check_records(region, header.records_count, base)
        if codec & CODEC_MASK:
            check_sizes(region, header.records_count, rules.record_bytes_max)
    except InvalidRecord:
        _check_whole(batch, header)
        raise
    if _stays(header, summary, rules, now):
        return batch  # nearly always
    return _adapted(batch, header, (region, summary), rules, now)


def validate_in_pieces(
    batch: memoryview, rules: RecordRules, now: Millis
) -> memoryview | bytearray:
    """Validate like `validate_batch`, for a worker thread: no step holds the GIL for long.

    Records are checked while they are decompressed, so a malformed one ends the work, and only a
    chunk and the current record are in memory. Only a batch that has to be changed, or that has
    records which a rule forbids, is decompressed as a whole, within the bound.
    """
    header = _header_within(batch, rules)
    if header.compression is Compression.NONE:
        return validate_batch(batch, rules, now)
    try:
        check_readable(header.compression, batch[HEADER_BYTES:])
        summary = _check_pieces(batch, header, rules.record_bytes_max)
    except InvalidRecord:
        _check_whole(batch, header)
        raise
    if _stays(header, summary, rules, now):
        return batch
    region = unpack_region(batch, 0, header, bytes_max=UNPACKED_BYTES_MAX)
    return _adapted(batch, header, (region, summary), rules, now)


def _check_pieces(batch: memoryview, header: BatchHeader, size_max: int) -> RecordsSummary:
    """Check the records of a compressed batch while they are decompressed; see `check_records`."""
    count, base = header.records_count, header.base_timestamp
    if count <= 0:
        raise InvalidRecord("a batch without records")
    packed = batch[HEADER_BYTES : header.size]
    window, done = bytearray(), 0
    newest, newest_index, has_null_key, oldest = _INT64_LOWEST, 0, False, _INT64_HIGHEST
    for piece in unpack_pieces(header.compression, packed, UNPACKED_BYTES_MAX):
        window += piece
        first = done
        taken, done, found = check_some(window, first, count, base, size_max)
        del window[:taken]
        if done > first:
            if first == 0 or found[0] > newest:
                newest, newest_index = found[:2]
            has_null_key, oldest = has_null_key or found[2], min(oldest, found[3])
        if done == count and window:
            raise InvalidRecord(f"{len(window)} bytes after the last record")
    if done < count:
        raise InvalidRecord(f"{done} records where the header says {count}")
    return RecordsSummary(newest, newest_index, has_null_key, oldest)


def _header_within(batch: memoryview, rules: RecordRules) -> BatchHeader:
    header = read_header(batch)
    if len(batch) > rules.batch_bytes_max:
        raise RecordTooLarge(f"{len(batch)} bytes, max.message.bytes is {rules.batch_bytes_max}")
    return header


def _stays(header: BatchHeader, summary: RecordsSummary, rules: RecordRules, now: Millis) -> bool:
    """Say whether a batch is appended unchanged."""
    newest = header.base_timestamp + summary.max_timestamp_delta
    codec = header.attributes & (CODEC_MASK | LOG_APPEND_TIME)
    return (
        (rules.codec is None or rules.codec == codec)
        and newest == header.max_timestamp >= NO_TIMESTAMP
        and _is_allowed(header, summary, rules, now)
    )


def _adapted(
    batch: memoryview,
    header: BatchHeader,
    found: tuple[Buffer, RecordsSummary],
    rules: RecordRules,
    now: Millis,
) -> memoryview | bytearray:
    """Reject a batch with records that a rule forbids, or convert it for the topic."""
    region, summary = found
    _check_whole(batch, header)
    if not _is_allowed(header, summary, rules, now):
        _reject(header, region, rules, now)
    newest = header.max_timestamp
    if not header.is_log_append_time:
        newest = Millis(max(NO_TIMESTAMP, header.base_timestamp + summary.max_timestamp_delta))
    if rules.codec is not None and rules.codec is not header.compression:
        if header.is_log_append_time:
            header, region = _with_own_timestamps(batch, header)
        attributes = header.attributes & ~CODEC_MASK | rules.codec
        header = header._replace(attributes=attributes, max_timestamp=newest)
        return seal_batch(header, compress(rules.codec, region, rules.level))
    has_lied = newest != header.max_timestamp or header.is_log_append_time
    if has_lied and not rules.is_log_append_time:  # the log writes its own time there
        _mend(batch, header, newest)
    return batch


def _check_whole(batch: memoryview, header: BatchHeader) -> None:
    """Check what the log checks: its errors take precedence over errors of records."""
    if not is_crc_valid(batch, 0, header):
        raise CorruptBatch("CRC does not match")
    check_produced_header(header)


def _with_own_timestamps(batch: memoryview, header: BatchHeader) -> tuple[BatchHeader, Buffer]:
    """Give each record the one timestamp that a batch in LogAppendTime had for all."""
    records = read_records(batch, bytes_max=UNPACKED_BYTES_MAX)
    region = encode_records(records, header.base_offset, header.max_timestamp)
    attributes = header.attributes & ~LOG_APPEND_TIME
    return header._replace(attributes=attributes, base_timestamp=header.max_timestamp), region


def _mend(batch: memoryview, header: BatchHeader, newest: Millis) -> None:
    """Set the maximum timestamp in the header from the records, and update the CRC."""
    _INT16.pack_into(batch, ATTRIBUTES_AT, header.attributes & ~LOG_APPEND_TIME)
    _INT64.pack_into(batch, MAX_TIMESTAMP_AT, newest)
    patch_crc(batch, 0, header.size)


def allows_records(
    rules: RecordRules, newest: int, oldest: int, has_null_key: bool, now: Millis
) -> bool:
    """Return whether the topic allows all records of a batch; both paths of Produce ask this.

    ``newest`` and ``oldest`` are the extreme timestamps of the batch's records. If it returns
    False, each record has to be checked: one with timestamp -1 is allowed all the same.
    """
    if rules.is_compacted and has_null_key:
        return False
    return rules.is_log_append_time or (
        newest <= now + rules.after_ms_max and oldest >= now - rules.before_ms_max
    )


def _is_allowed(
    header: BatchHeader, summary: RecordsSummary, rules: RecordRules, now: Millis
) -> bool:
    """Return whether no rule can reject any record; if not, each one has to be checked."""
    if header.attributes & LOG_APPEND_TIME:
        return False
    base = header.base_timestamp
    newest, oldest = base + summary.max_timestamp_delta, base + summary.min_timestamp_delta
    return allows_records(rules, newest, oldest, summary.has_null_key, now)


def _reject(header: BatchHeader, region: Buffer, rules: RecordRules, now: Millis) -> None:
    """Check every record; raise if a rule forbids any."""
    spans = walk_spans(region, header.records_count)
    errors: list[RecordError] = []
    count, has_bad_timestamp = 0, False
    for index in range(spans.count):
        if rules.is_compacted and spans.key_lengths[index] < 0:
            reason: str | None = "A compacted topic takes no record without a key."
        else:
            timestamp = header.max_timestamp
            if not header.is_log_append_time:
                timestamp = Millis(header.base_timestamp + spans.timestamp_deltas[index])
            reason = _timestamp_error(header, index, timestamp, rules, now)
            has_bad_timestamp |= reason is not None
        if reason is not None:
            count += 1
            if len(errors) < RECORD_ERRORS_MAX:
                errors.append(RecordError(index, reason))
    if has_bad_timestamp:
        raise TimestampsRejected(f"{_REJECTED} invalid timestamp", errors)
    if errors:
        raise RecordsRejected(f"{_REJECTED} {count} record errors in total", errors)


def _timestamp_error(
    header: BatchHeader, index: int, timestamp: Millis, rules: RecordRules, now: Millis
) -> str | None:
    if not rules.is_log_append_time and timestamp != NO_TIMESTAMP:
        if now - rules.before_ms_max <= timestamp <= now + rules.after_ms_max:
            return None
        return (
            f"Timestamp {timestamp} of message with offset {header.base_offset + index} is out of "
            f"range. The timestamp should be within [{now - rules.before_ms_max}, "
            f"{now + rules.after_ms_max}]"
        )
    if header.is_log_append_time:
        return "A producer must not set the timestamp type LogAppendTime."
    return None
