"""The codecs: round trips, both snappy framings, and everything hostile (rows 34 and 35)."""

import gzip
import struct
import tracemalloc

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import InvalidRecord
from ottla.protocol.records.batch import Compression, read_header
from ottla.protocol.records.compression import LEVELS, compress, decompress
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import build_batch
from record_tools import count_and_check

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
LARGE = 10_000_000
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
TEXT = b"to be or not to be, that is the question; " * 4000


def refused(codec: Compression, data: bytes, bytes_max: int = LARGE) -> bool:
    with pytest.raises(InvalidRecord) as caught:
        decompress(codec, data, bytes_max)
    return caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", Compression)
@settings(max_examples=40, deadline=None)
@given(data=st.binary(max_size=300), times=st.integers(0, 700))
def test_what_is_packed_unpacks(codec: Compression, data: bytes, times: int) -> None:
    whole = data * times
    for form in (bytes, bytearray, memoryview):
        packed = compress(codec, form(whole))
        assert decompress(codec, form(bytes(packed)), len(whole)) == whole


@pytest.mark.parametrize("codec", LEVELS)
def test_every_level_unpacks_to_the_same(codec: Compression) -> None:
    lowest, highest, default = LEVELS[codec]
    for level in {lowest, default, 1, highest}:
        assert decompress(codec, compress(codec, TEXT, level), len(TEXT)) == TEXT
    assert len(compress(codec, TEXT, highest)) <= len(compress(codec, TEXT, lowest))


@pytest.mark.parametrize("codec", LEVELS)
def test_a_level_out_of_range_is_our_bug(codec: Compression) -> None:
    with pytest.raises(AssertionError):
        compress(codec, TEXT, LEVELS[codec].highest + 1)


def test_the_level_of_a_batch_reaches_the_codec() -> None:
    records = [Record(0, 0, None, TEXT)]
    best, worst = (
        build_batch(records, compression=Compression.GZIP, level=level) for level in (9, 1)
    )
    assert len(best) < len(worst)
    assert read_records(best) == read_records(worst) == records


def test_lz4_is_written_as_kafka_can_read_it() -> None:
    flags, blocks = compress(Compression.LZ4, TEXT)[4:6]
    assert flags == 0b0110_0000  # version 1, independent blocks, no checksums, no size
    assert blocks == 0x40  # blocks of 64 KiB


def test_snappy_is_written_in_blocks_as_java_does() -> None:
    packed = bytes(compress(Compression.SNAPPY, bytes(70_000)))
    assert packed[:16] == XERIAL
    position, unpacked = 16, []
    while position < len(packed):
        (length,) = struct.unpack_from(">i", packed, position)
        block = packed[position + 4 : position + 4 + length]
        unpacked.append(len(bytes(cramjam.snappy.decompress_raw(block))))
        position += 4 + length
    assert unpacked == [32768, 32768, 70_000 - 65_536]


def test_snappy_without_framing_is_read_as_librdkafka_sends_it() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Compression.SNAPPY, raw, len(TEXT)) == TEXT
    assert refused(Compression.SNAPPY, raw, len(TEXT) - 1)


def test_an_empty_xerial_stream_is_empty() -> None:
    assert decompress(Compression.SNAPPY, XERIAL, 0) == b""


@pytest.mark.parametrize(
    "data",
    [
        b"\x82SNAPPY\x00" + struct.pack(">ii", 0, 1),  # a version before the first
        XERIAL[:12],
        XERIAL + b"\0\0\0",
        XERIAL + struct.pack(">i", 0),
        XERIAL + struct.pack(">i", -1),
        XERIAL + struct.pack(">i", 2**31 - 1) + b"x",
        b"",
        b"\xff\xff\xff\xff\xff\xff",
    ],
)
def test_35_broken_snappy_framing_is_refused(data: bytes) -> None:
    assert refused(Compression.SNAPPY, data, 2**31)


def test_35_a_size_that_snappy_cannot_hold_is_not_allocated() -> None:
    with pytest.raises(InvalidRecord, match="24 bytes of snappy cannot hold 268435455"):
        decompress(Compression.SNAPPY, b"\xff\xff\xff\x7f" + b"\0" * 20, 2**31)


@pytest.mark.parametrize("codec", CODECS)
def test_35_output_stops_at_the_bound(codec: Compression) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    assert refused(codec, packed, len(TEXT) - 1)
    assert refused(codec, packed, 0)


@pytest.mark.parametrize("codec", CODECS)
def test_35_a_cut_off_stream_is_refused(codec: Compression) -> None:
    packed = bytes(compress(codec, bytes(range(256)) * 30))
    for cut in range(len(packed)):
        if codec is Compression.SNAPPY and cut == len(XERIAL):
            continue  # blocks may end anywhere; the records that are missing tell
        assert refused(codec, packed[:cut])


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("garbage", [b"\0", b"x", b"\x28\xb5\x2f\xfd", b"\0" * 100])
def test_35_bytes_behind_the_stream_are_refused(codec: Compression, garbage: bytes) -> None:
    assert refused(codec, bytes(compress(codec, TEXT)) + garbage)


@pytest.mark.parametrize("codec", CODECS)
def test_35_a_second_stream_is_refused(codec: Compression) -> None:
    assert refused(codec, bytes(compress(codec, TEXT)) * 2)


@pytest.mark.parametrize("codec", CODECS)
def test_35_another_codecs_data_is_refused(codec: Compression) -> None:
    for other in Compression:
        if other is not codec:
            assert refused(codec, bytes(compress(other, TEXT)))


def bombs() -> dict[str, tuple[Compression, bytes]]:
    """Each unpacks to 200 MB or more."""
    zeros, size = bytes(1 << 20), 200
    gzipped = gzip.compress(zeros * size, 9)
    stream = zstandard.ZstdCompressor().compressobj()
    zstd_stream = b"".join(stream.compress(zeros) for _ in range(size)) + stream.flush()
    lz4_frame = lz4.frame.compress(zeros * size)
    return {
        "gzip": (Compression.GZIP, gzipped),
        "zstd, size stated": (Compression.ZSTD, zstandard.compress(zeros * size)),
        "zstd, size not stated": (Compression.ZSTD, zstd_stream),
        "lz4": (Compression.LZ4, lz4_frame),
        "lz4, size stated": (Compression.LZ4, lz4.frame.compress(zeros * size, store_size=True)),
        "snappy": (Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(zeros * size))),
        "xerial": (Compression.SNAPPY, bytes(compress(Compression.SNAPPY, zeros * size))),
    }


@pytest.mark.slow
def test_35_bombs_cost_no_more_memory_than_the_bound() -> None:
    for name, (codec, packed) in bombs().items():
        assert len(packed) < 11_000_000, name
        tracemalloc.start()
        try:
            assert refused(codec, packed, 1_000_000)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 12_000_000 + len(packed), name


def test_35_a_size_that_zstd_states_is_not_allocated() -> None:
    honest = zstandard.compress(bytes(100))
    assert honest[4] == 0x20 and honest[5] == 100  # single segment, one byte of size
    liar = honest[:4] + b"\xa0" + struct.pack("<I", 90_000_000) + honest[6:]
    tracemalloc.start()
    try:
        assert refused(Compression.ZSTD, liar, 100_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize("size", [1, 2, 70_000, 900_000])
def test_zstd_unpacks_to_the_bound_and_not_a_byte_more(size: int) -> None:
    stream = zstandard.ZstdCompressor().compressobj()
    unsized = stream.compress(b"z" * size) + stream.flush()
    for packed in (zstandard.compress(b"z" * size), unsized):
        assert decompress(Compression.ZSTD, packed, size) == b"z" * size
        assert refused(Compression.ZSTD, packed, size - 1)


def test_35_a_zstd_block_of_the_reserved_type_is_refused() -> None:
    packed = bytearray(zstandard.compress(b"abc"))
    packed[6] |= 0b110
    assert refused(Compression.ZSTD, bytes(packed))


def test_35_a_batch_inside_a_batch_is_data_and_stays_packed() -> None:
    inner = build_batch([Record(0, 0, None, bytes(1 << 20))], compression=Compression.GZIP)
    outer = build_batch([Record(0, 0, None, bytes(inner))], compression=Compression.GZIP)
    assert read_records(outer, bytes_max=10_000)[0].value == inner


@pytest.mark.parametrize("codec", CODECS)
def test_35_a_bomb_of_a_batch_is_refused_by_reader_and_check(codec: Compression) -> None:
    batch = build_batch([Record(0, 0, None, bytes(100_000))], compression=codec)
    with pytest.raises(InvalidRecord):
        read_records(batch, bytes_max=50_000)
    with pytest.raises(InvalidRecord):
        count_and_check(batch, 0, read_header(batch), bytes_max=50_000)


def test_nothing_packed_is_bounded_too() -> None:
    assert decompress(Compression.NONE, b"abc", 3) == b"abc"
    assert refused(Compression.NONE, b"abc", 2)
