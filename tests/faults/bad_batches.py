"""Rows 29 to 44 of the catalogue of bad inputs, as record batches and names of topics."""

import struct
import time
from dataclasses import dataclass, field

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import HEADER_BYTES, Compression, read_header
from ottla.protocol.records.compression import compress
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import Producer, build_batch, seal_batch, varint
from ottla.protocol.types import Millis, Offset

CORRUPT, INVALID = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD
BOMB_BYTES = 70 << 20
PACKED = [each for each in Compression if each is not Compression.NONE]
TOPIC = {"max_message_bytes": "1000000"}


@dataclass(frozen=True)
class Refused:
    """A batch that must be rejected, its error code, and its topic."""

    batch: bytes
    code: ErrorCode
    version: int = 9
    topic: dict[str, str] = field(default_factory=lambda: TOPIC)


def now() -> Millis:
    return Millis(int(time.time() * 1000))


def good(*values: bytes, key: bytes | None = b"k", at: int | None = None, **fields) -> bytearray:
    stamp = now() if at is None else Millis(at)
    return build_batch(
        [Record(Offset(i), stamp, key, v) for i, v in enumerate(values or (b"v",))], **fields
    )


def resealed(batch: bytearray, packed: bytes | None = None, **changes) -> bytes:
    """Change header or records of a batch, and recompute its CRC."""
    header = read_header(batch)._replace(**changes)
    return bytes(seal_batch(header, bytes(batch[HEADER_BYTES:]) if packed is None else packed))


def patched(at: int, data: bytes) -> bytes:
    batch = good()
    batch[at : at + len(data)] = data
    return bytes(batch)


def record_with(headers: bytes) -> bytes:
    body = b"\0" + varint(0) + varint(0) + varint(1) + b"k" + varint(1) + b"v" + headers
    return varint(len(body)) + body


def bomb(codec: Compression) -> bytes:
    """Return a batch that decompresses to far more bytes."""
    size = BOMB_BYTES if codec is not Compression.SNAPPY else BOMB_BYTES // 4
    return resealed(good(compression=codec), bytes(compress(codec, bytes(size))))


def stream(codec: Compression, change: str) -> bytes:
    batch = good(b"x" * 400, compression=codec)
    packed = bytes(batch[HEADER_BYTES:])
    changed = {"cut": packed[: len(packed) // 2], "noise": b"\xa5" * len(packed)}
    return resealed(batch, changed[change])


def rows() -> dict[str, Refused]:
    """Return the rows; created on demand, since timestamps are current."""
    found = {
        "29 wrong CRC": Refused(patched(40, b"\x7f"), CORRUPT),
        "30 magic 1": Refused(patched(16, b"\1"), INVALID),
        "30 magic 3": Refused(patched(16, b"\3"), CORRUPT),
        "31 longer than its bytes": Refused(patched(8, struct.pack(">i", 5000)), INVALID),
        "31 shorter than its bytes": Refused(patched(8, struct.pack(">i", 49)), CORRUPT),
        "32 count": Refused(resealed(good(b"a", b"b"), records_count=3), INVALID),
        "32 count of 2^31-1": Refused(
            resealed(good(), records_count=2**31 - 1, last_offset_delta=2**31 - 2), INVALID
        ),
        "33 two batches": Refused(bytes(good() + good()), INVALID),
        "36 zstd of old": Refused(
            bytes(good(compression=Compression.ZSTD)), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, 6
        ),
        "37 too large": Refused(bytes(good(b"x" * 1_200_000)), ErrorCode.MESSAGE_TOO_LARGE),
        "38 the year 10000": Refused(
            bytes(good(at=253_402_300_800_000)), ErrorCode.INVALID_TIMESTAMP
        ),
        "39 2^31 headers": Refused(resealed(good(), record_with(varint(2**31 - 1))), INVALID),
        "39 a header without a key": Refused(
            resealed(good(), record_with(varint(1) + varint(-1) + varint(0))), INVALID
        ),
        "40 no key": Refused(bytes(good(key=None)), INVALID, topic={"cleanup_policy": "compact"}),
        "41 control": Refused(bytes(good(is_control=True)), INVALID),
        "43 no transaction": Refused(
            bytes(good(producer=Producer(4711, 0, 0), is_transactional=True)),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
    }
    for number in (5, 6, 7):
        found[f"34 codec {number}"] = Refused(resealed(good(), attributes=number), INVALID)
    for codec in PACKED:
        for change in ("cut", "noise"):
            found[f"35 {change}, {codec.name}"] = Refused(stream(codec, change), INVALID)
    return found


def bomb_rows() -> dict[str, Refused]:
    """Return a decompression bomb for each codec."""
    return {f"35 a bomb, {codec.name}": Refused(bomb(codec), INVALID) for codec in PACKED}


NAMES = ["", ".", "..", "a" * 250, "../../etc/x", "nul\0", "😀", "a/b"]


def sequenced(producer_id: int, sequence: int, epoch: int = 0) -> bytes:
    return bytes(good(producer=Producer(producer_id, epoch, sequence)))
