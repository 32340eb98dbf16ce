"""Batches of Apache Kafka 4.2.1, byte for byte, and our batches read by kio.

The golden ones come from its MemoryRecordsBuilder: base offset 100, leader epoch 7, producer
4000 epoch 3 sequence 2147483646, transactional, three records.
"""

import pytest
from kio.records.readers import read_batch as kio_read_batch

from ottla.protocol.records.batch import Compression, is_crc_valid, read_header
from ottla.protocol.records.compression import compress, decompress
from ottla.protocol.records.reader import Header, Record, read_records
from ottla.protocol.records.writer import Producer, build_batch
from record_tools import count_and_check

pytestmark = pytest.mark.engine

GOLDEN = {
    Compression.NONE: bytes.fromhex(
        "000000000000006400000064000000070215e7dbc50010000000020000018bcfe568000000018bcf"
        "e568050000000000000fa000037ffffffe0000000324000000046b301476616c7565207a65726f00"
        "2c000a02011276616c7565206f6e650402680278026e0110001304046b320100"
    ),
    Compression.GZIP: bytes.fromhex(
        "00000000000000640000007400000007026d575ad60011000000020000018bcfe568000000018bcf"
        "e568050000000000000fa000037ffffffe000000031f8b08000000000000ff5361606060c9361029"
        "4bcc294d55a84a2dca67d061e06262148208e4e7a5b23065305530e5310a3008b3b0641b31320000"
        "9c762d1433000000"
    ),
    Compression.SNAPPY: bytes.fromhex(
        "00000000000000640000007700000007022609a1f60012000000020000018bcfe568000000018bcf"
        "e568050000000000000fa000037ffffffe0000000382534e41505059000000000100000001000000"
        "32336024000000046b301476616c7565207a65726f002c000a02011209114c6f6e65040268027802"
        "6e0110001304046b320100"
    ),
    Compression.LZ4: bytes.fromhex(
        "00000000000000640000007300000007021953c9e60013000000020000018bcfe568000000018bcf"
        "e568050000000000000fa000037ffffffe0000000304224d186040823300008024000000046b3014"
        "76616c7565207a65726f002c000a02011276616c7565206f6e650402680278026e0110001304046b"
        "32010000000000"
    ),
    Compression.ZSTD: bytes.fromhex(
        "0000000000000064000000700000000702deca09a40014000000020000018bcfe568000000018bcf"
        "e568050000000000000fa000037ffffffe0000000328b52ffd005898010024000000046b30147661"
        "6c7565207a65726f002c000a02011276616c7565206f6e650402680278026e0110001304046b3201"
        "00010000"
    ),
}
RECORDS = [
    Record(100, 1_700_000_000_000, b"k0", b"value zero"),
    Record(101, 1_700_000_000_005, None, b"value one", (Header("h", b"x"), Header("n", None))),
    Record(102, 1_699_999_999_990, b"k2", None),
]


def build(compression: Compression) -> bytearray:
    return build_batch(
        RECORDS,
        base_offset=100,
        leader_epoch=7,
        compression=compression,
        producer=Producer(4000, 3, 2147483646),
        is_transactional=True,
    )


@pytest.mark.parametrize("codec", Compression)
def test_batches_written_by_kafka_are_read(codec: Compression) -> None:
    batch = GOLDEN[codec]
    header = read_header(batch)
    assert is_crc_valid(batch, 0, header)
    assert header.compression is codec
    assert (header.size, header.base_offset, header.next_offset) == (len(batch), 100, 103)
    assert (header.leader_epoch, header.records_count) == (7, 3)
    assert (header.producer_id, header.producer_epoch) == (4000, 3)
    assert (header.base_sequence, header.last_sequence) == (2147483646, 0)
    assert (header.base_timestamp, header.max_timestamp) == (1_700_000_000_000, 1_700_000_000_005)
    assert header.is_transactional and not header.is_control and not header.is_log_append_time
    assert read_records(batch) == RECORDS
    assert count_and_check(batch, 0, header) == (5, 1, True, -10)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.SNAPPY, Compression.LZ4])
def test_written_batches_equal_kafkas(codec: Compression) -> None:
    # gzip and zstd leave a writer free to choose other bytes for the same data.
    assert build(codec) == GOLDEN[codec]


@pytest.mark.parametrize("codec", Compression)
def test_compressed_batches_decompress_to_kafkas_records(codec: Compression) -> None:
    region = bytes(GOLDEN[Compression.NONE][61:])
    assert decompress(codec, GOLDEN[codec][61:], len(region)) == region
    assert decompress(codec, compress(codec, region), len(region)) == region


def test_kio_reads_written_batches() -> None:
    theirs, size = kio_read_batch(bytes(build(Compression.NONE)), 0)
    assert size == len(GOLDEN[Compression.NONE])
    assert [
        (
            r.offset,
            int(r.timestamp.timestamp()),
            r.key,
            r.value,
            [(h.key, h.value) for h in r.headers],
        )
        for r in theirs.records
    ] == [
        (
            r.offset,
            r.timestamp // 1000,
            r.key,
            r.value,
            [(h.key.encode(), h.value) for h in r.headers],
        )
        for r in RECORDS
    ]
