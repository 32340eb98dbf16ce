"""Keys and values by their format: the one way of the command line, SQL, Spark and table jobs.

`file_values` and `registry_values.subject_values` return the `Values` of a declared format;
`decode_all` decodes with them, and `as_column` makes a column of the result. A key or value that
cannot be decoded, or does not fit its column, has a reason; the caller decides what becomes of it.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ottla.formats.schema_bounds import BadSchema
from ottla.formats.wire_format import HEADERS, framed_part

if TYPE_CHECKING:
    import pyarrow as pa


class BadFormatOption(ValueError):
    """A format that cannot be used; the message names the topic and the option."""


class Format(enum.StrEnum):
    """How a key or a value is read."""

    AUTO = "auto"
    RAW = "raw"
    TEXT = "text"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class BadValues(enum.StrEnum):
    """What happens with a key or value that does not fit its format."""

    FAIL = "fail"
    NULL = "null"


class PartOptions(msgspec.Struct, frozen=True):
    """How the user declares the format of keys or values."""

    format: Format = Format.AUTO
    schema: str | None = None
    schema_file: str | None = None
    message: str | None = None
    is_framed: bool = False
    """Each begins with the id or guid of a schema registry, which is skipped."""


class Values(Protocol):
    """Decodes the keys or values of one schema.

    ``is_framed``: each begins with what names its schema, which may be in a header of the record.
    """

    @property
    def is_framed(self) -> bool:
        """Whether `framed_column` is applied before `decode`."""
        ...

    @property
    def columns(self) -> "pa.Schema":
        """The fields."""
        ...

    def decode(self, value: bytes) -> dict[str, Any]:
        """Return the fields of a value. Raises ValueError."""
        ...


def file_values(
    topic: str, part: str, options: PartOptions, read: Callable[[str], bytes]
) -> Values:
    """Return the decoder of Avro or Protobuf with a schema in a file, which ``read`` reads.

    Raises:
        BadFormatOption: there is no file, it cannot be read, or its schema cannot be used.
    """
    if options.schema_file is None:
        option = "--schema-file" if part == "value" else "--key-schema-file"
        raise BadFormatOption(f"{topic}: {part}s in {options.format} need {option}, or --registry")
    with libraries_for(f"{topic}: {part}s in {options.format}"):
        from ottla.formats.avro_values import AvroValues
        from ottla.formats.protobuf_values import ProtobufValues
    try:
        content = read(options.schema_file)
        if options.format is Format.AVRO:
            return AvroValues(content.decode(), framed=options.is_framed)
        if options.message is None:
            raise BadFormatOption(
                f"{topic}: {part}s in protobuf need --message, the message's name"
            )
        return ProtobufValues(content, options.message, framed=options.is_framed)
    except OSError as error:
        raise BadFormatOption(f"{options.schema_file}: {error.strerror}") from error
    except (BadSchema, UnicodeDecodeError) as error:
        raise BadFormatOption(f"{options.schema_file}: {error}") from error


@contextmanager
def libraries_for(what: str) -> Iterator[None]:
    """Import the libraries of a format, which are extras. Raises BadFormatOption."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise BadFormatOption(
            f"{what} need the module {error.name}, which is not installed: pip install 'ottla[sql]'"
        ) from error


def framed_column(part: str, data: "pa.Array", headers: "pa.Array | None") -> list[bytes | None]:
    """Return keys or values, each after the bytes of the record header that names its schema.

    ``headers`` are lists of structs of key and value, a list per record. Without such a header the
    data is returned as it is.
    """
    plain: list[bytes | None] = data.to_pylist()
    if headers is None:
        return plain
    import pyarrow.compute as pc

    names = headers.flatten().field("key")
    if not pc.any(pc.equal(names, HEADERS[part])).as_py():
        return plain
    return [
        framed_part(part, datum, ((each["key"], each["value"]) for each in own or ()))
        for datum, own in zip(plain, headers.to_pylist(), strict=True)
    ]


def decode_all(
    data: Iterable[bytes | None], decode: Callable[[bytes], dict[str, Any]]
) -> tuple[list[dict[str, Any] | None], list[str | None]]:
    """Return the fields of each key or value, and the reasons of bad ones; both None for null.

    ``decode`` is that of `Values`.
    """
    rows: list[dict[str, Any] | None] = []
    reasons: list[str | None] = []
    for datum in data:
        row, reason = None, None
        if datum is not None:
            try:
                row = decode(datum)
            except (ValueError, TypeError, OverflowError) as error:
                reason = str(error)
        rows.append(row)
        reasons.append(reason)
    return rows, reasons


def as_column(
    data: Sequence[object], kind: "pa.DataType", reasons: list[str | None], why: str = ""
) -> "pa.Array":
    """Return a column; a datum that fits its schema but not the column is null and has a reason.

    ``why`` begins the reasons.
    """
    import pyarrow as pa

    unfit = (ValueError, TypeError, OverflowError, pa.ArrowException)
    try:
        return pa.array(data, kind)
    except unfit:
        fitting = list(data)  # without those that do not fit
    for index, datum in enumerate(data):
        try:
            pa.scalar(datum, kind)
        except unfit as error:
            fitting[index], reasons[index] = None, f"{why}{error}"
    return pa.array(fitting, kind)
