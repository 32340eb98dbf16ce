"""The codec's entry points, and the cache of generated code per (message, version).

encode(message, version) -> bytes          encode_into(out, message, version)
decode(Message, version, buffer)           decode_prefix(Message, version, buffer, position)

For large messages: ``encode_steps`` and ``decode_steps``, generators that yield often.
"""

from collections.abc import Callable, Generator
from struct import error as struct_error
from typing import TypeVar, cast

from ottla.protocol.codec.explain import explain
from ottla.protocol.codec.layout import has_records
from ottla.protocol.codec.primitives import Reader, Writer
from ottla.protocol.codec.reading import write_reader
from ottla.protocol.codec.writing import write_writer
from ottla.protocol.faults import ProtocolFault, UnsupportedVersion
from ottla.protocol.schema import Message, covers
from ottla.protocol.types import Buffer

M = TypeVar("M", bound=Message)
View = Callable[[Buffer], Buffer]
StepReader = Callable[[Buffer, int, int], Generator[None, None, tuple[Message, int]]]
StepWriter = Callable[[bytearray, Message], Generator[None, None, None]]

# Exceptions of a generated reader for malformed bytes.
_BAD_BYTES = (IndexError, struct_error, UnicodeDecodeError)
# Bounded by the number of messages and versions; no input adds a key.
_readers: dict[tuple[type[Message], int], tuple[Reader, View]] = {}
_writers: dict[tuple[type[Message], int], Writer] = {}
_step_readers: dict[tuple[type[Message], int], tuple[StepReader, View]] = {}
_step_writers: dict[tuple[type[Message], int], StepWriter] = {}


def encode(message: Message, version: int) -> bytes:
    """Return a message's bytes in a version.

    Fields that the version lacks are left out; tagged fields that have their default, too.

    Raises:
        ValueError: no such version, or a value that does not fit its field.
    """
    out = bytearray()
    encode_into(out, message, version)
    return bytes(out)


def encode_into(out: bytearray, message: Message, version: int) -> None:
    """Append a message's bytes to ``out``, which is as it was if this raises.

    Raises:
        ValueError: as `encode`.
    """
    try:
        write = _writers[type(message), version]
    except KeyError:
        write = _writer(type(message), version)
    start = len(out)
    try:
        write(out, message)
    except (struct_error, TypeError, AttributeError, ValueError, OverflowError) as error:
        del out[start:]
        fault = explain(message, version, is_flexible(type(message), version))
        if fault is None:
            raise
        raise ValueError(f"{type(message).__name__} v{version}: {fault}") from error


def decode(message: type[M], version: int, buffer: Buffer) -> M:
    """Read a message that fills the buffer.

    Records are views into ``buffer``; all other values are copies.

    Raises:
        ProtocolFault: the message is malformed, or followed by other bytes.
        UnsupportedVersion: the message has no such version.
    """
    decoded, position = decode_prefix(message, version, buffer)
    if position == len(buffer):
        return decoded
    count = len(buffer) - position
    raise ProtocolFault(f"{message.__name__} v{version}: {count} bytes behind the last field")


def decode_prefix(
    message: type[M], version: int, buffer: Buffer, position: int = 0
) -> tuple[M, int]:
    """Read a message from ``position`` on; return it and where it ends.

    Raises:
        ProtocolFault: the bytes are no such message.
        UnsupportedVersion: the message has no such version.
    """
    try:
        read, view = _readers[message, version]
    except KeyError:
        read, view = _reader(message, version)
    try:
        return read(view(buffer), position, len(buffer))  # type: ignore[return-value]
    except _BAD_BYTES as error:
        raise _fault(message, version, error) from error


def decode_steps(
    message: type[M], version: int, buffer: Buffer
) -> Generator[None, None, tuple[M, int]]:
    """Decode as `decode_prefix` does, yielding often. The buffer must not change meanwhile.

    Raises:
        ProtocolFault, UnsupportedVersion: as `decode_prefix`.
    """
    found = _step_readers.get((message, version))
    if found is None:
        _, view = _reader(message, version)
        made = write_reader(message, version, is_flexible(message, version), in_steps=True)
        found = cast("StepReader", made), view
        _step_readers[message, version] = found
    read, view = found
    try:
        return (yield from read(view(buffer), 0, len(buffer)))  # type: ignore[return-value]
    except _BAD_BYTES as error:
        raise _fault(message, version, error) from error


def encode_steps(out: bytearray, message: Message, version: int) -> Generator[None, None, None]:
    """Append a message's bytes to ``out`` as `encode_into` does, yielding often.

    Raises:
        ValueError: as `encode`; ``out`` is of no use then.
    """
    write = _step_writers.get((type(message), version))
    if write is None:
        _writer(type(message), version)
        flexible = is_flexible(type(message), version)
        made = write_writer(type(message), version, flexible, in_steps=True)
        write = _step_writers[type(message), version] = cast("StepWriter", made)
    try:
        yield from write(out, message)
    except (struct_error, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{type(message).__name__} v{version}: {error}") from error


def _fault(message: type[Message], version: int, error: Exception) -> ProtocolFault:
    what = "string is not UTF-8" if isinstance(error, UnicodeError) else "ends within a field"
    return ProtocolFault(f"{message.__name__} v{version}: {what}")


def is_flexible(message: type[Message], version: int) -> bool:
    """Return whether a version of a message has compact lengths and tagged fields."""
    first = message.SCHEMA.flexible
    return first is not None and version >= first


def _reader(message: type[Message], version: int) -> tuple[Reader, View]:
    if not covers(message.SCHEMA.versions, version):
        raise UnsupportedVersion(f"{message.__name__} has no version {version}")
    reader = cast("Reader", write_reader(message, version, is_flexible(message, version)))
    # Bytes are faster to index and slice; records must not be copied.
    view: View = memoryview if has_records(message, version) else bytes
    entry = _readers[message, version] = reader, view
    return entry


def _writer(message: type[Message], version: int) -> Writer:
    if not covers(message.SCHEMA.versions, version):
        raise ValueError(f"{message.__name__} has no version {version}")
    writer = cast("Writer", write_writer(message, version, is_flexible(message, version)))
    _writers[message, version] = writer
    return writer
