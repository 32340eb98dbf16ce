"""Validation piece by piece comes to the same as validation of the whole batch."""

import random

import pytest
from codec_frames import NOW, PLAIN, REGION, all_frames

from ottla.api.produce.record_validation import (
    RecordRules,
    rules_of,
    validate_batch,
    validate_in_pieces,
)
from ottla.config.generated import TopicConfig
from ottla.protocol.faults import Fault, InvalidRecord
from ottla.protocol.records import compression
from ottla.protocol.records.batch import Compression, patch_crc, read_header
from ottla.protocol.records.compression import compress, unpack_pieces
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch, seal_batch
from ottla.protocol.types import Millis, Offset

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
RULES = rules_of(TopicConfig(max_message_bytes=1 << 30))


def outcome(validate, batch: bytes, rules: RecordRules) -> tuple[str, object]:
    try:
        return "valid", bytes(validate(memoryview(bytearray(batch)), rules, Millis(NOW)))
    except Fault as fault:
        return type(fault).__name__, fault.code


def some_batch(rng: random.Random, codec: Compression) -> bytearray:
    stamps = [NOW + rng.choice([0, 5, -7, 10**10]) for _ in range(rng.randrange(1, 30))]
    records = [
        Record(Offset(i), Millis(at), rng.choice([None, b"k"]), rng.randbytes(rng.randrange(200)))
        for i, at in enumerate(stamps)
    ]
    batch = build_batch(records, compression=codec)
    match rng.randrange(6):
        case 0:  # the count
            batch[57 + rng.randrange(4)] ^= 1 << rng.randrange(8)
            patch_crc(batch, 0, len(batch))
        case 1:  # the newest timestamp
            batch[42] ^= 1
            patch_crc(batch, 0, len(batch))
        case 2:
            batch[rng.randrange(61, len(batch))] ^= 1 << rng.randrange(8)
            patch_crc(batch, 0, len(batch))
        case 3:
            batch[rng.randrange(61, len(batch))] ^= 1
    return batch


@pytest.mark.parametrize("codec", CODECS)
def test_pieces_come_to_the_same_as_the_whole(
    codec: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(codec.value)
    for _ in range(300):
        monkeypatch.setattr(compression, "PIECE_BYTES", rng.choice([1, 2, 7, 100, 1 << 18]))
        batch = bytes(some_batch(rng, codec))
        rules = RULES._replace(
            is_compacted=rng.random() < 0.3, codec=rng.choice([None, None, Compression.ZSTD])
        )
        assert outcome(validate_in_pieces, batch, rules) == outcome(validate_batch, batch, rules)


@pytest.mark.parametrize("frame", all_frames(), ids=lambda frame: frame.name)
def test_every_frame_comes_to_the_same_in_pieces(frame) -> None:
    batch = bytes(frame.batch())
    assert outcome(validate_in_pieces, batch, RULES) == outcome(validate_batch, batch, RULES)


def test_a_malformed_record_ends_the_unpacking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros are no records: nothing of a bomb is unpacked but its first piece."""
    packed = compress(Compression.GZIP, bytes(32 << 20))
    header = read_header(PLAIN)._replace(attributes=Compression.GZIP)
    bomb = seal_batch(header, packed)
    seen: list[int] = []

    def counted(*given):
        for piece in unpack_pieces(*given):
            seen.append(len(piece))
            yield piece

    monkeypatch.setattr("ottla.api.produce.record_validation.unpack_pieces", counted)
    with pytest.raises(InvalidRecord, match="record 0"):
        validate_in_pieces(memoryview(bomb), RULES, Millis(NOW))
    assert seen == [compression.PIECE_BYTES]


@pytest.mark.parametrize("validate", [validate_batch, validate_in_pieces])
@pytest.mark.parametrize("codec", list(Compression))
def test_record_above_max_decompressed_message_bytes_is_rejected_if_compressed(
    codec: Compression, validate
) -> None:
    records = [
        Record(Offset(i), Millis(NOW), b"key", bytes(size)) for i, size in ((0, 9), (1, 500))
    ]
    batch = bytes(build_batch(records, compression=codec))
    size = 510  # attributes, deltas, 1 + 3 bytes of key, 2 + 500 of value, no headers
    fits = rules_of(TopicConfig(max_decompressed_message_bytes=size))
    assert outcome(validate, batch, fits)[0] == "valid"
    exceeds = rules_of(TopicConfig(max_decompressed_message_bytes=size - 1))
    expected = "valid" if codec is Compression.NONE else "InvalidRecord"
    assert outcome(validate, batch, exceeds)[0] == expected


def test_an_oversized_record_ends_the_unpacking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its length is read before its bytes: they are not collected."""
    record = Record(Offset(0), Millis(NOW), b"key", bytes(32 << 20))
    batch = build_batch([record], compression=Compression.GZIP)
    seen: list[int] = []

    def counted(*arguments):
        for piece in unpack_pieces(*arguments):
            seen.append(len(piece))
            yield piece

    monkeypatch.setattr("ottla.api.produce.record_validation.unpack_pieces", counted)
    rules = RULES._replace(record_bytes_max=1 << 20)
    with pytest.raises(InvalidRecord, match=r"max.decompressed.message.bytes is 1048576"):
        validate_in_pieces(memoryview(batch), rules, Millis(NOW))
    assert seen == [compression.PIECE_BYTES]


@pytest.mark.parametrize("codec", CODECS)
def test_pieces_stop_at_the_bound(codec: Compression) -> None:
    packed = compress(codec, REGION)
    assert b"".join(unpack_pieces(codec, packed, len(REGION))) == REGION
    with pytest.raises(compression.UnpacksToMore):
        list(unpack_pieces(codec, packed, len(REGION) - 1))
