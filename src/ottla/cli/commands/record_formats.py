"""Formats of keys and values for ``ottla consume`` and ``ottla produce``.

Decoded keys and values are printed as JSON; JSON lines are encoded. Schemas are in a file (Avro, or
a descriptor set of Protobuf), or in a schema registry, whose wire format is then read and
written.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import typer

from ottla.cli.commands.registry_option import AUTO, registry_settings, require_registry
from ottla.cli.commands.sql_output import plain
from ottla.cli.terminal.rendering import Plain
from ottla.formats.record_values import (
    BadFormatOption,
    Format,
    PartOptions,
    file_values,
)
from ottla.formats.registry_client import RegistryFailed
from ottla.formats.registry_values import SubjectValues
from ottla.formats.registry_writer import EncodedPart, RegistryWriter, SubjectWriter, encoder_of
from ottla.formats.schema_bounds import BadSchema
from ottla.formats.subjects import Encoding, SubjectStrategy, parse_strategy
from ottla.formats.wire_format import HEADERS, framed_part, is_framed
from ottla.protocol.records.reader import Header, Record

Decode = Callable[[bytes], bytes]
Encode = Callable[[bytes], tuple[bytes, tuple[Header, ...]]]
"""Returns an encoded line, and the headers that go with it."""
_TEXTUAL: Final = (Format.RAW, Format.TEXT, Format.JSON, Format.AUTO)


class FormatOptions(msgspec.Struct, frozen=True):
    """The format of keys or values, as the user gives it."""

    part: str
    format: Format = Format.RAW
    schema_file: str | None = None
    message: str | None = None
    registry: str | None = None
    bootstrap: str | None = None
    uses_header: bool = False
    """Whether the schema is named by a header when records are written."""


def parse_format(text: str, option: str) -> Format:
    """Parse the name of a format."""
    try:
        return Format(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} must be one of {', '.join(Format)}", param_hint=option
        ) from None


def decoder_of(topic: str, options: FormatOptions) -> Decode | None:
    """Return a function that makes JSON of keys or values of a topic; None: they are printed as is.

    The function raises ValueError for a value that does not fit, and RegistryFailed.

    Raises:
        BadFormatOption: a schema is missing, or cannot be used. RegistryFailed: the registry does
            not answer.
    """
    if options.format in _TEXTUAL:
        return None if options.format is not Format.JSON else _json_decoder(topic, options)
    if options.format is Format.PROTOBUF and str(options.schema_file).endswith(".proto"):
        name = str(options.schema_file)
        compiled = f"{name.removesuffix('.proto')}.desc"
        raise BadFormatOption(
            f"{name}: is source text; compile it with `protoc --include_imports "
            f"--descriptor_set_out={compiled} {name}` and give {compiled}"
        )
    if options.schema_file is not None:
        part = PartOptions(options.format, None, options.schema_file, options.message)
        return _as_json(file_values(topic, options.part, part, _read_file).decode)
    settings = require_registry(options.registry, options.bootstrap)
    return _as_json(SubjectValues(settings, f"{topic}-{options.part}").decode)


def _json_decoder(topic: str, options: FormatOptions) -> Decode:
    """Return a decoder of JSON: with a schema of a registry where a value names one."""
    decode: Decode | None = None

    def decode_json(data: bytes) -> bytes:
        nonlocal decode
        if not is_framed(data) and registry_settings(options.registry) is None:
            return data
        if decode is None:
            settings = require_registry(options.registry, options.bootstrap)
            decode = _as_json(SubjectValues(settings, f"{topic}-{options.part}").decode)
        return decode(data)

    return decode_json


def decoders(options: Sequence[FormatOptions]) -> Callable[[str, Record], Record]:
    """Return a function that decodes the key and the value of a record of any topic.

    It raises as `decoder_of` and the functions that this returns.
    """
    made: dict[tuple[str, str], Decode | None] = {}

    def part(topic: str, each: FormatOptions, record: Record) -> bytes | None:
        place, data = (topic, each.part), record.key if each.part == "key" else record.value
        if place not in made:
            made[place] = decoder_of(topic, each)
        decode = made[place]
        if decode is None or data is None:
            return data
        if each.schema_file is None:
            data = framed_part(each.part, data, record.headers)
            assert data is not None
        try:
            return decode(data)
        except BadFormatOption:
            raise
        except ValueError as error:
            raise ValueError(f"the {each.part}: {error}") from error

    def decode(topic: str, record: Record) -> Record:
        parts = {"key": record.key, "value": record.value}
        for each in options:
            parts[each.part] = part(topic, each, record)
        return record._replace(key=parts["key"], value=parts["value"])

    return decode


def _read_file(name: str) -> bytes:
    return Path(name).read_bytes()


def _as_json(decode: Callable[[bytes], dict[str, object]]) -> Decode:
    return lambda data: _json_of(decode(data))


def _json_of(fields: dict[str, object]) -> bytes:
    shown: Plain = plain(fields)
    return json.dumps(shown, ensure_ascii=False).encode()


def parse_subject_strategy(text: str) -> SubjectStrategy:
    """Parse ``--subject-strategy``."""
    try:
        return parse_strategy(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--subject-strategy") from error


def encoder_for(topic: str, options: FormatOptions, strategy: SubjectStrategy) -> Encode | None:
    """Return a function that encodes JSON; None: bytes are sent as they are.

    The schema is that of the file, which is registered if there is a registry, or else the newest
    one of the subject. The function raises ValueError for a line that is not JSON, or does not fit
    the schema.

    Raises:
        BadFormatOption: a schema is missing, or cannot be used. RegistryFailed: the registry does
            not answer, or rejects the schema.
    """
    if options.format in _TEXTUAL and options.format is not Format.JSON:
        return None
    has_registry = options.registry == AUTO or registry_settings(options.registry) is not None
    if options.schema_file is None:
        if options.format is Format.JSON and not has_registry:
            return _without_headers(_checked_json)
        return _subject_encoder(topic, options, strategy)
    try:
        if not has_registry:
            return _without_headers(_encoded(_file_encoder(options, options.schema_file)))
        settings = require_registry(options.registry, options.bootstrap)
        text = _read_file(options.schema_file).decode()
        encoding = Encoding(options.format.value)
        writer = RegistryWriter(settings, encoding, strategy, options.part, text)
        writer.prepare(topic)
    except OSError as error:
        raise BadFormatOption(f"{options.schema_file}: {error.strerror}") from error
    except (BadSchema, UnicodeDecodeError) as error:
        raise BadFormatOption(f"{options.schema_file}: {error}") from error
    return _part_encoder(topic, options, writer.encode_part)


def _file_encoder(options: FormatOptions, file: str) -> Callable[[object], bytes]:
    if options.format is Format.PROTOBUF:
        from ottla.formats.protobuf_writer import message_encoder

        return message_encoder(_read_file(file), options.message)
    return encoder_of(Encoding(options.format.value), _read_file(file).decode())


def _subject_encoder(topic: str, options: FormatOptions, strategy: SubjectStrategy) -> Encode:
    """Return an encoder by the newest schema of the topic's subject."""
    if strategy is not SubjectStrategy.TOPIC:
        raise BadFormatOption(
            f"--subject-strategy {strategy.value} needs --schema-file, which names the record"
        )
    settings = require_registry(options.registry, options.bootstrap)
    try:
        writer = SubjectWriter(settings, Encoding(options.format.value), f"{topic}-{options.part}")
    except BadSchema as error:
        raise BadFormatOption(str(error)) from error
    return _part_encoder(topic, options, writer.encode_part)


def _part_encoder(
    topic: str, options: FormatOptions, encode: Callable[[str, object], EncodedPart]
) -> Encode:
    """Return a function that writes the schema before the payload, or into a header."""

    def encode_line(line: bytes) -> tuple[bytes, tuple[Header, ...]]:
        part = encode(topic, _parsed(line))
        if options.uses_header:
            return part.payload, (Header(HEADERS[options.part], part.header),)
        return part.with_id, ()

    return encode_line


def _without_headers(encode: Decode) -> Encode:
    return lambda line: (encode(line), ())


def _encoded(encode: Callable[[object], bytes]) -> Decode:
    return lambda line: encode(_parsed(line))


def _checked_json(line: bytes) -> bytes:
    """Return a line as it is, if it is JSON. Raises ValueError."""
    _parsed(line)
    return line


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error


def _reject_constant(name: str) -> object:
    raise ValueError(f"{name} is not a value of JSON")


FAILURES: Final = (BadFormatOption, RegistryFailed)
