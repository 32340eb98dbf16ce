"""Frames of every codec, ordinary and odd, around the same records."""

import gzip
import struct
import zlib
from typing import NamedTuple

import cramjam
import lz4.frame
import zstandard

from ottla.protocol.records.batch import HEADER_BYTES, Compression, read_header
from ottla.protocol.records.compression import compress
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch, seal_batch
from ottla.protocol.types import Millis, Offset

NOW = 1_700_000_000_000
RECORDS = [
    Record(Offset(index), Millis(NOW), b"k", b"%d, to be or not to be; " % index * 2000)
    for index in range(5)
]
PLAIN = build_batch(RECORDS)
REGION = bytes(PLAIN[HEADER_BYTES:])


class Frame(NamedTuple):
    """``is_taken`` is what this broker makes of it, ``by_kafka`` what Kafka's does."""

    name: str
    codec: Compression
    packed: bytes
    is_taken: bool
    by_kafka: bool

    def batch(self) -> bytearray:
        """Return a batch whose records are packed so."""
        header = read_header(PLAIN)
        return seal_batch(header._replace(attributes=self.codec), self.packed)


_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def _rotated(value: int, bits: int) -> int:
    value &= 0xFFFFFFFF
    return (value << bits | value >> (32 - bits)) & 0xFFFFFFFF


def _xxh32(data: bytes) -> int:
    """The checksum of lz4 frames, with seed 0."""
    one, two, three, four, five = _PRIMES
    position, value = 0, five
    if len(data) >= 16:
        columns = [one + two, two, 0, -one]
        for position in range(0, len(data) - 15, 16):
            words = struct.unpack_from("<4I", data, position)
            columns = [_rotated(a + w * two, 13) * one for a, w in zip(columns, words, strict=True)]
        position += 16
        value = sum(_rotated(a, bits) for a, bits in zip(columns, (1, 7, 12, 18), strict=True))
    value += len(data)
    while position + 4 <= len(data):
        (word,) = struct.unpack_from("<I", data, position)
        value, position = _rotated(value + word * three, 17) * four, position + 4
    for byte in data[position:]:
        value = _rotated(value + byte * five, 11) * one
    value &= 0xFFFFFFFF
    value = (value ^ value >> 15) * two & 0xFFFFFFFF
    value = (value ^ value >> 13) * three & 0xFFFFFFFF
    return value ^ value >> 16


def _lz4_frame(flags: int, block: int, extra: bytes = b"", *, checksum: int | None = None) -> bytes:
    """Return a frame of blocks that are not compressed, behind any descriptor."""
    descriptor = bytes((flags, block)) + extra
    if checksum is None:
        checksum = _xxh32(descriptor) >> 8 & 0xFF
    blocks = b""
    for start in range(0, len(REGION), 65536):
        piece = REGION[start : start + 65536]
        blocks += struct.pack("<I", len(piece) | 1 << 31) + piece
        if flags & 0x10:
            blocks += struct.pack("<I", _xxh32(piece))
    end = struct.pack("<I", 0)
    if flags & 0x04:
        end += struct.pack("<I", _xxh32(REGION))
    return struct.pack("<I", 0x184D2204) + descriptor + bytes((checksum,)) + blocks + end


def lz4_frames() -> list[Frame]:
    ordinary = bytes(compress(Compression.LZ4, REGION))
    size = struct.pack("<Q", len(REGION))
    linked = lz4.frame.compress(REGION, block_linked=True, block_size=4)
    wrong = _lz4_frame(0x64, 0x40)
    wrong = wrong[:-4] + bytes(4)
    frames = {
        "ordinary": (ordinary, True, True),
        "stored blocks": (_lz4_frame(0x60, 0x40), True, True),
        "blocks of 4 MiB": (_lz4_frame(0x60, 0x70), True, True),
        "content size": (_lz4_frame(0x68, 0x40, size), True, True),
        "content checksum": (_lz4_frame(0x64, 0x40), True, True),
        "block checksums": (_lz4_frame(0x70, 0x40), True, True),
        "linked blocks": (linked, False, False),
        "linked flag on stored blocks": (_lz4_frame(0x40, 0x40), False, False),
        "version 0": (_lz4_frame(0x20, 0x40), False, False),
        "version 2": (_lz4_frame(0xA0, 0x40), False, False),
        "reserved flag": (_lz4_frame(0x62, 0x40), False, False),
        "dictionary": (_lz4_frame(0x61, 0x40, b"\1\0\0\0"), False, False),
        "reserved block bits": (_lz4_frame(0x60, 0x41), False, False),
        "reserved block flag": (_lz4_frame(0x60, 0xC0), False, False),
        "block size 3": (_lz4_frame(0x60, 0x30), False, False),
        "wrong header checksum": (_lz4_frame(0x60, 0x40, checksum=0), False, False),
        "no end mark": (ordinary[:-4], False, False),
        "legacy magic": (struct.pack("<I", 0x184C2102) + ordinary[4:], False, False),
        "skippable frame first": (
            struct.pack("<II", 0x184D2A50, 4) + b"skip" + ordinary,
            False,
            False,
        ),
        # librdkafka checks all of these and Java's reader none.
        "wrong content size": (_lz4_frame(0x68, 0x40, struct.pack("<Q", 7)), False, True),
        "wrong content checksum": (wrong, False, True),
        "bytes behind the frame": (ordinary + b"x", False, True),
        "two frames": (ordinary * 2, False, True),
    }
    return [Frame(f"lz4: {name}", Compression.LZ4, *rest) for name, rest in frames.items()]


def _gzip_with(flags: int, fields: bytes = b"") -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    body = packer.compress(REGION) + packer.flush()
    head = b"\x1f\x8b\x08" + bytes((flags,)) + bytes(6) + fields
    if flags & 2:
        head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    return head + body + struct.pack("<II", zlib.crc32(REGION), len(REGION))


def gzip_frames() -> list[Frame]:
    ordinary = bytes(compress(Compression.GZIP, REGION))
    halves = gzip.compress(REGION[:1000]) + gzip.compress(REGION[1000:])
    wrong_crc = ordinary[:-8] + bytes(4) + ordinary[-4:]
    wrong_header = bytearray(_gzip_with(2))
    wrong_header[10] ^= 1
    frames = {
        "ordinary": (ordinary, True, True),
        "file name": (_gzip_with(8, b"records\0"), True, True),
        "extra field": (_gzip_with(4, b"\3\0abc"), True, True),
        "comment": (_gzip_with(16, b"why\0"), True, True),
        "header checksum": (_gzip_with(2), True, True),
        "wrong header checksum": (bytes(wrong_header), False, False),
        "wrong checksum": (wrong_crc, False, False),
        "no trailer": (ordinary[:-8], False, False),
        "zlib instead": (zlib.compress(REGION), False, False),
        # zlib, and so librdkafka, takes no reserved flags and only one member.
        "reserved flags": (_gzip_with(0xE0), False, True),
        "two members": (halves, False, True),
        "bytes behind the member": (ordinary + b"garbage", False, True),
    }
    return [Frame(f"gzip: {name}", Compression.GZIP, *rest) for name, rest in frames.items()]


def _xerial(version: int, compatible: int, *blocks: bytes) -> bytes:
    packed = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    body = b"".join(struct.pack(">i", len(each)) + each for each in packed)
    return b"\x82SNAPPY\x00" + struct.pack(">ii", version, compatible) + body


def snappy_frames() -> list[Frame]:
    raw = bytes(cramjam.snappy.compress_raw(REGION))
    halves = REGION[:1000], REGION[1000:]
    frames = {
        "ordinary": (bytes(compress(Compression.SNAPPY, REGION)), True, True),
        "raw": (raw, True, True),
        "one block": (_xerial(1, 1, REGION), True, True),
        "version 2": (_xerial(2, 1, *halves), True, True),
        "compatible with 9": (_xerial(1, 9, *halves), True, True),
        "cut block": (_xerial(1, 1, *halves)[:-1], False, False),
        "raw with bytes behind": (raw + b"x", False, False),
        "standard framing": (bytes(cramjam.snappy.compress(REGION)), False, False),
        # No writer has it, and clients that compare the whole header do not know it.
        "version 0": (_xerial(0, 1, *halves), False, True),
        # librdkafka takes the second header for the length of a block.
        "two streams": (_xerial(1, 1, halves[0]) + _xerial(1, 1, halves[1]), False, True),
    }
    return [Frame(f"snappy: {name}", Compression.SNAPPY, *rest) for name, rest in frames.items()]


def _zstd_window(log: int, *, is_sized: bool = False) -> bytes:
    """Return a frame of raw blocks that states a window, and perhaps a content size."""
    frame = struct.pack("<I", 0xFD2FB528) + bytes((0x80 * is_sized, (log - 10) << 3))
    if is_sized:
        frame += struct.pack("<I", len(REGION))
    pieces = [REGION[start : start + 65536] for start in range(0, len(REGION), 65536)]
    for number, piece in enumerate(pieces):
        is_last = number == len(pieces) - 1
        frame += struct.pack("<I", len(piece) << 3 | is_last)[:3] + piece
    return frame


def zstd_frames() -> list[Frame]:
    ordinary = bytes(compress(Compression.ZSTD, REGION))
    stream = zstandard.ZstdCompressor().compressobj()
    unsized = stream.compress(REGION) + stream.flush()
    checked = zstandard.ZstdCompressor(write_checksum=True).compress(REGION)
    parameters = zstandard.ZstdCompressionParameters(window_log=28, write_content_size=0)
    wide = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    wide_window = wide.compress(REGION) + wide.flush()
    trained = zstandard.ZstdCompressionDict(REGION[:2000] * 4)
    with_dictionary = zstandard.ZstdCompressor(dict_data=trained).compress(REGION)
    named = struct.pack("<I", 0xFD2FB528) + bytes((0x01, 0x38, 7)) + _zstd_window(17)[6:]
    halves = zstandard.compress(REGION[:1000]) + zstandard.compress(REGION[1000:])
    skippable = struct.pack("<II", 0x184D2A50, 4) + b"skip"
    frames = {
        "ordinary": (ordinary, True, True),
        "no content size": (unsized, True, True),
        "checksum": (checked, True, True),
        "wrong checksum": (checked[:-1] + bytes((checked[-1] ^ 1,)), False, False),
        "window of 128 MiB": (_zstd_window(27), True, True),
        "window of 256 MiB": (_zstd_window(28), False, False),
        "window of 256 MiB, packed": (wide_window, False, False),
        "window of 256 MiB, size stated": (_zstd_window(28, is_sized=True), False, False),
        "window of 2 GiB": (_zstd_window(31), False, False),
        "dictionary that is not there": (with_dictionary, False, False),
        "dictionary id": (named, False, False),
        "bytes behind the frame": (ordinary + b"x", False, False),
        # Readers that unpack into the size that the first frame states find too little room.
        "two frames": (halves, False, True),
        "skippable frame first": (skippable + ordinary, False, True),
        "skippable frame last": (ordinary + skippable, False, True),
    }
    return [Frame(f"zstd: {name}", Compression.ZSTD, *rest) for name, rest in frames.items()]


def all_frames() -> list[Frame]:
    return [*lz4_frames(), *gzip_frames(), *snappy_frames(), *zstd_frames()]
