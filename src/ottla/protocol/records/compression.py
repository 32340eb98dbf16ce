"""Compresses and decompresses the records of a batch, within a size limit.

The framing of each codec, as Kafka's clients write it::

    gzip    one member (RFC 1952)
    snappy  Java: the xerial stream: 82 "SNAPPY" 00, version int32, compatible int32,
            then blocks: length int32 (big-endian), raw snappy;
            librdkafka: one raw block. A raw block states its length as a plain varint
    lz4     one frame, version 1, blocks that do not refer to each other, no content size
    zstd    one frame; content size stated or not

Compressed data is untrusted, so a declared size is never allocated: output is produced in pieces
until the data ends or the limit is exceeded. Truncated streams, and bytes after the end, are
rejected: a batch has exactly one stream.

`decompress` accepts every such stream, because stored data must remain readable. `check_readable`
rejects streams of producers that Kafka's or librdkafka's consumers cannot decompress.
"""

import zlib
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

import cramjam
import lz4.frame
import zstandard

from ottla.protocol.faults import InvalidRecord
from ottla.protocol.records.batch import Compression
from ottla.protocol.types import Buffer

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_VERSION: Final = 1
_XERIAL_HEADER: Final = Struct(">8sii")
_XERIAL_BLOCK_BYTES: Final = 32 * 1024  # as snappy-java cuts its input
_INT32: Final = Struct(">i")
# Three bytes of snappy expand to at most 64; a larger declared length is invalid.
_SNAPPY_RATIO_MAX: Final = 22

PIECE_BYTES: Final = 256 * 1024
"""The size of pieces of decompressed data: well below a millisecond of work."""

_PIECE_BYTES_MIN: Final = 64 * 1024
_GZIP_WBITS: Final = 31  # a gzip header around a window of 32 KiB
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_FLAGS_AT: Final = 4
_LZ4_FLAGS_CHECKED: Final = 0b1110_0011
_LZ4_FLAGS_KNOWN: Final = 0b0110_0000  # version 1, independent blocks
_LZ4_BLOCK_CHECKED: Final = 0b1100_1111
_LZ4_BLOCK_KNOWN: Final = 0b0100_0000
_ZSTD_WINDOW_BYTES_MAX: Final = 128 << 20  # the default limit of zstd's streams
_ZSTD_IDLE: Final[list[zstandard.ZstdDecompressor]] = []  # in use by nobody
_ZSTD_IDLE_MAX: Final = 4
_ZSTD_RATIO_MAX: Final = 32  # what is packed tighter is unpacked piece by piece
_ZSTD_BLOCK_BYTES_MAX: Final = 128 * 1024  # unpacked
_ZSTD_BLOCK_RLE: Final = 1
_ZSTD_BLOCK_RESERVED: Final = 3


class Levels(NamedTuple):
    """The inclusive range of ``compression.<codec>.level``."""

    lowest: int
    highest: int
    default: int


LEVELS: Final = {
    Compression.GZIP: Levels(1, 9, -1),
    Compression.LZ4: Levels(1, 17, 9),
    Compression.ZSTD: Levels(-131072, 22, 3),
}


def compress(codec: Compression, data: Buffer, level: int | None = None) -> Buffer:
    """Compress ``data``; ``level`` is in `LEVELS`, ``None`` is the default."""
    if codec is Compression.NONE:
        return data
    if codec is Compression.SNAPPY:
        return _compress_snappy(data)
    levels = LEVELS[codec]
    if level is None:
        level = levels.default
    assert level == levels.default or levels.lowest <= level <= levels.highest
    return _COMPRESS[codec](data, level)


def decompress(codec: Compression, data: Buffer, bytes_max: int) -> bytes:
    """Decompress ``data`` to at most ``bytes_max`` bytes.

    Memory stays within a small multiple of the actual output and of the limit.

    Raises:
        InvalidRecord: the output exceeds the limit, or the data is truncated, followed by other
            bytes, or not of this codec.
    """
    if codec is Compression.NONE:
        if len(data) > bytes_max:
            raise _too_large(codec, bytes_max)
        return bytes(data)
    try:
        return _DECOMPRESS[codec](memoryview(data), bytes_max)
    except _CODEC_ERRORS as error:
        raise InvalidRecord(f"{codec.name.lower()} data does not unpack: {error}") from error


def unpack_pieces(codec: Compression, data: Buffer, bytes_max: int) -> Iterator[bytes]:
    """Yield the decompressed ``data`` in pieces, so that the reader can stop early.

    Pieces have at most `PIECE_BYTES`, except blocks of snappy, which are not split.

    Raises:
        InvalidRecord: as `decompress`; `UnpacksToMore` once ``bytes_max`` is exceeded.
    """
    bytes_left = bytes_max
    try:
        for piece in _PIECES[codec](memoryview(data), bytes_max):
            bytes_left -= len(piece)
            if bytes_left < 0:
                raise _too_large(codec, bytes_max)
            yield piece
    except _CODEC_ERRORS as error:
        raise InvalidRecord(f"{codec.name.lower()} data does not unpack: {error}") from error


def check_readable(codec: Compression, data: Buffer) -> None:
    """Check what `decompress` does not: that consumers can decompress ``data``.

    Raises:
        InvalidRecord: consumers cannot decompress it.
    """
    if codec is Compression.LZ4:
        _check_lz4_descriptor(memoryview(data))
    elif codec is Compression.ZSTD:
        _check_zstd_header(memoryview(data))


# The lz4 binding raises only RuntimeError for an invalid frame.
_CODEC_ERRORS: Final = (
    zlib.error,
    cramjam.DecompressionError,
    RuntimeError,
    zstandard.ZstdError,
)


class UnpacksToMore(InvalidRecord):
    """The decompressed data exceeds the limit."""


def _too_large(codec: Compression, bytes_max: int) -> UnpacksToMore:
    return UnpacksToMore(f"{codec.name.lower()} data unpacks to more than {bytes_max} bytes")


def _not_one_stream(codec: Compression, *, is_cut: bool) -> InvalidRecord:
    return InvalidRecord(
        f"{codec.name.lower()} data is cut off"
        if is_cut
        else f"bytes behind {codec.name.lower()} data"
    )


# -- gzip --------------------------------------------------------------------


def _compress_gzip(data: Buffer, level: int) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WBITS)
    return packer.compress(data) + packer.flush()


def _decompress_gzip(data: memoryview, bytes_max: int) -> bytes:
    unpacker = zlib.decompressobj(_GZIP_WBITS)
    unpacked = unpacker.decompress(data, bytes_max + 1)
    if len(unpacked) > bytes_max:
        raise _too_large(Compression.GZIP, bytes_max)
    if not unpacker.eof or unpacker.unused_data:
        raise _not_one_stream(Compression.GZIP, is_cut=not unpacker.eof)
    return unpacked


def _gzip_pieces(data: memoryview, bytes_max: int) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(_GZIP_WBITS)
    fed: Buffer = data
    while not unpacker.eof:
        piece = unpacker.decompress(fed, PIECE_BYTES)
        fed = unpacker.unconsumed_tail
        if not piece and not fed and not unpacker.eof:
            raise _not_one_stream(Compression.GZIP, is_cut=True)
        yield piece
    if unpacker.unused_data:
        raise _not_one_stream(Compression.GZIP, is_cut=False)


# -- snappy ------------------------------------------------------------------


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, _XERIAL_VERSION, _XERIAL_VERSION)]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, bytes_max: int) -> bytes:
    return b"".join(_snappy_pieces(data, bytes_max))


def _snappy_pieces(data: memoryview, bytes_max: int) -> Iterator[bytes]:
    """Yield one block after the other."""
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield _decompress_snappy_block(data, bytes_max)
        return
    if len(data) < _XERIAL_HEADER.size:
        raise _not_one_stream(Compression.SNAPPY, is_cut=True)
    _, version, _ = _XERIAL_HEADER.unpack_from(data)
    if version < _XERIAL_VERSION:
        raise InvalidRecord(f"snappy stream of version {version}")
    bytes_left = bytes_max
    position = _XERIAL_HEADER.size
    while position < len(data):
        end = _xerial_block_end(data, position)
        block = _decompress_snappy_block(data[position + _INT32.size : end], bytes_left)
        bytes_left -= len(block)
        yield block
        position = end


def _xerial_block_end(data: memoryview, position: int) -> int:
    remaining = len(data) - position - _INT32.size
    if remaining < 0:
        raise _not_one_stream(Compression.SNAPPY, is_cut=True)
    (length,) = _INT32.unpack_from(data, position)
    if not 0 < length <= remaining:
        raise InvalidRecord(f"snappy block of {length} bytes where {remaining} remain")
    return position + _INT32.size + int(length)


def _decompress_snappy_block(data: memoryview, bytes_max: int) -> bytes:
    stated = _snappy_length(data)
    if stated > bytes_max:
        raise _too_large(Compression.SNAPPY, bytes_max)
    if stated > len(data) * _SNAPPY_RATIO_MAX:
        raise InvalidRecord(f"{len(data)} bytes of snappy cannot hold {stated}")
    return bytes(cramjam.snappy.decompress_raw(data))


def _snappy_length(data: memoryview) -> int:
    """Read the decompressed length at the start of a raw block: a varint of at most 5 bytes."""
    length = 0
    for index, byte in enumerate(data[:5]):
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return length
    raise InvalidRecord("snappy data without a length")


# -- lz4 ---------------------------------------------------------------------


def _compress_lz4(data: Buffer, level: int) -> bytes:
    """Compress into independent blocks of 64 KiB, the only kind that Kafka's readers accept.

    As in Kafka, the default level selects the fast compressor, every other level the
    high-compression one, which begins at 3 here.
    """
    packed: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level == LEVELS[Compression.LZ4].default else max(level, 3),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return packed


def _decompress_lz4(data: memoryview, bytes_max: int) -> bytes:
    unpacker = lz4.frame.LZ4FrameDecompressor()
    pieces: list[bytes] = []
    bytes_left = bytes_max + 1
    piece_bytes = _piece_bytes(data)
    fed: Buffer = data
    while not unpacker.eof and bytes_left > 0:
        piece = unpacker.decompress(fed, min(piece_bytes, bytes_left))
        fed = b""
        if not piece and not unpacker.eof:
            raise _not_one_stream(Compression.LZ4, is_cut=True)
        pieces.append(piece)
        bytes_left -= len(piece)
    if bytes_left <= 0:
        raise _too_large(Compression.LZ4, bytes_max)
    if unpacker.unused_data:
        raise _not_one_stream(Compression.LZ4, is_cut=False)
    return b"".join(pieces)


def _lz4_pieces(data: memoryview, bytes_max: int) -> Iterator[bytes]:
    unpacker = lz4.frame.LZ4FrameDecompressor()
    fed: Buffer = data
    while not unpacker.eof:
        piece = unpacker.decompress(fed, PIECE_BYTES)
        fed = b""
        if not piece and not unpacker.eof:
            raise _not_one_stream(Compression.LZ4, is_cut=True)
        yield piece
    if unpacker.unused_data:
        raise _not_one_stream(Compression.LZ4, is_cut=False)


def _check_lz4_descriptor(data: memoryview) -> None:
    """Reject frames that Kafka's reader rejects: linked blocks and dictionaries.

    A frame opens with its magic, then two bytes of flags: version (2 bits), independent blocks,
    block checksums, content size, content checksum, reserved, dictionary; and reserved, the
    blocks' size (3 bits, 4 to 7), reserved (4 bits).
    """
    if len(data) < _LZ4_FLAGS_AT + 2 or bytes(data[:_LZ4_FLAGS_AT]) != _LZ4_MAGIC:
        raise InvalidRecord("lz4 data without a frame's magic")
    flags, block = data[_LZ4_FLAGS_AT], data[_LZ4_FLAGS_AT + 1]
    if flags & _LZ4_FLAGS_CHECKED != _LZ4_FLAGS_KNOWN:
        raise InvalidRecord(f"lz4 frame with flags {flags:#04x}: linked blocks, or unknown ones")
    if block & _LZ4_BLOCK_CHECKED != _LZ4_BLOCK_KNOWN:
        raise InvalidRecord(f"lz4 frame with block descriptor {block:#04x}")


def _piece_bytes(data: memoryview) -> int:
    """Return a size that holds most data in one piece, bounded by the compressed size."""
    return max(_PIECE_BYTES_MIN, 8 * len(data))


# -- zstd --------------------------------------------------------------------


def _compress_zstd(data: Buffer, level: int) -> bytes:
    return zstandard.ZstdCompressor(level=level).compress(data)


def _decompress_zstd(data: memoryview, bytes_max: int) -> bytes:
    frame_end, blocks = _zstd_frame(data)
    if frame_end != len(data):
        raise _not_one_stream(Compression.ZSTD, is_cut=False)
    stated = zstandard.frame_content_size(data)
    if stated > bytes_max:
        raise _too_large(Compression.ZSTD, bytes_max)
    room = min(blocks * _ZSTD_BLOCK_BYTES_MAX, _ZSTD_RATIO_MAX * len(data), bytes_max)
    if stated <= room and (unpacked := _decompress_zstd_within(data, room)) is not None:
        return unpacked
    pieces: list[bytes] = []
    bytes_left = bytes_max + 1
    with zstandard.ZstdDecompressor().stream_reader(data) as unpacker:
        while bytes_left > 0:
            piece = unpacker.read(min(_piece_bytes(data), bytes_left))
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
            bytes_left -= len(piece)
    raise _too_large(Compression.ZSTD, bytes_max)


def _zstd_pieces(data: memoryview, bytes_max: int) -> Iterator[bytes]:
    if _zstd_frame(data)[0] != len(data):
        raise _not_one_stream(Compression.ZSTD, is_cut=False)
    if zstandard.frame_content_size(data) > bytes_max:
        raise _too_large(Compression.ZSTD, bytes_max)
    with zstandard.ZstdDecompressor().stream_reader(data) as unpacker:
        while piece := unpacker.read(PIECE_BYTES):
            yield piece


def _decompress_zstd_within(data: memoryview, room: int) -> bytes | None:
    """Decompress data that fits into ``room`` in one call; None if that fails.

    Creating a decompressor costs more than decompressing most batches, so a few are kept. With
    single calls only, it never allocates a window of a size chosen by the sender.
    """
    try:
        unpacker = _ZSTD_IDLE.pop()
    except IndexError:
        unpacker = zstandard.ZstdDecompressor()
    try:
        unpacked = unpacker.decompress(data, max_output_size=max(room, 1))
        return unpacked if len(unpacked) <= room else None
    except zstandard.ZstdError:
        return None
    finally:
        if len(_ZSTD_IDLE) < _ZSTD_IDLE_MAX:
            _ZSTD_IDLE.append(unpacker)


def _check_zstd_header(data: memoryview) -> None:
    """Reject dictionaries, and windows larger than streaming readers allocate."""
    try:
        parameters = zstandard.get_frame_parameters(data)
    except zstandard.ZstdError as error:
        raise InvalidRecord(f"zstd data without a frame: {error}") from error
    if parameters.window_size > _ZSTD_WINDOW_BYTES_MAX:
        raise InvalidRecord(f"zstd frame with a window of {parameters.window_size} bytes")
    if parameters.dict_id:
        raise InvalidRecord(f"zstd frame with dictionary {parameters.dict_id}")


def _zstd_frame(data: memoryview) -> tuple[int, int]:
    """Return the end of the first frame and its number of blocks, from its block headers.

    The binding's bounded reader cannot distinguish a truncated frame from a complete one. A
    block header is 3 bytes, little-endian: bit 0 last, bits 1-2 type, the rest its size.
    """
    parameters = zstandard.get_frame_parameters(data)
    position = zstandard.frame_header_size(data)
    is_last, blocks = False, 0
    while not is_last:
        if position + 3 > len(data):
            raise _not_one_stream(Compression.ZSTD, is_cut=True)
        block = int.from_bytes(data[position : position + 3], "little")
        is_last = bool(block & 1)
        kind = block >> 1 & 3
        if kind == _ZSTD_BLOCK_RESERVED:
            raise InvalidRecord("zstd data with a reserved block type")
        position += 3 + (1 if kind == _ZSTD_BLOCK_RLE else block >> 3)
        blocks += 1
    position += 4 if parameters.has_checksum else 0
    if position > len(data):
        raise _not_one_stream(Compression.ZSTD, is_cut=True)
    return position, blocks


_COMPRESS: Final[dict[Compression, Callable[[Buffer, int], bytes]]] = {
    Compression.GZIP: _compress_gzip,
    Compression.LZ4: _compress_lz4,
    Compression.ZSTD: _compress_zstd,
}
_DECOMPRESS: Final[dict[Compression, Callable[[memoryview, int], bytes]]] = {
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}
_PIECES: Final[dict[Compression, Callable[[memoryview, int], Iterator[bytes]]]] = {
    Compression.GZIP: _gzip_pieces,
    Compression.SNAPPY: _snappy_pieces,
    Compression.LZ4: _lz4_pieces,
    Compression.ZSTD: _zstd_pieces,
}
