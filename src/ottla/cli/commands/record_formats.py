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

from ottla.cli.commands.registry_option import registry_settings
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
from ottla.formats.registry_writer import RegistryWriter, encoder_of
from ottla.formats.schema_bounds import BadSchema
from ottla.formats.subjects import Encoding, SubjectStrategy, parse_strategy
from ottla.protocol.records.reader import Record

Decode = Callable[[bytes], bytes]
_TEXTUAL: Final = (Format.RAW, Format.TEXT, Format.JSON, Format.AUTO)


class FormatOptions(msgspec.Struct, frozen=True):
    """The format of keys or values, as the user gives it."""

    part: str
    format: Format = Format.RAW
    schema_file: str | None = None
    message: str | None = None
    registry: str | None = None


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
    settings = registry_settings(options.registry)
    if options.format in _TEXTUAL and (settings is None or options.format is not Format.JSON):
        return None
    if options.format is Format.PROTOBUF and str(options.schema_file).endswith(".proto"):
        name = str(options.schema_file)
        compiled = f"{name.removesuffix('.proto')}.desc"
        raise BadFormatOption(
            f"{name}: is source text; compile it with `protoc --include_imports "
            f"--descriptor_set_out={compiled} {name}` and give {compiled}"
        )
    part = PartOptions(options.format, None, options.schema_file, options.message)
    if options.schema_file is not None or settings is None:
        return _as_json(file_values(topic, options.part, part, _read_file).decode)
    return _as_json(SubjectValues(settings, f"{topic}-{options.part}").decode)


def decoders(options: Sequence[FormatOptions]) -> Callable[[str, Record], Record]:
    """Return a function that decodes the key and the value of a record of any topic.

    It raises as `decoder_of` and the functions that this returns.
    """
    made: dict[tuple[str, str], Decode | None] = {}

    def part(topic: str, each: FormatOptions, data: bytes | None) -> bytes | None:
        place = (topic, each.part)
        if place not in made:
            made[place] = decoder_of(topic, each)
        decode = made[place]
        try:
            return data if decode is None or data is None else decode(data)
        except BadFormatOption:
            raise
        except ValueError as error:
            raise ValueError(f"the {each.part}: {error}") from error

    def decode(topic: str, record: Record) -> Record:
        parts = {"key": record.key, "value": record.value}
        for each in options:
            parts[each.part] = part(topic, each, parts[each.part])
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


def encoder_for(topic: str, options: FormatOptions, strategy: SubjectStrategy) -> Decode | None:
    """Return a function that encodes JSON; None: bytes are sent as they are.

    The function raises ValueError for a line that is not JSON, or does not fit the schema.

    Raises:
        BadFormatOption: a schema is missing, or cannot be used. RegistryFailed: the registry does
            not answer, or rejects the schema.
    """
    settings = registry_settings(options.registry)
    if options.format in _TEXTUAL and options.format is not Format.JSON:
        return None
    if options.format is Format.JSON and settings is None and options.schema_file is None:
        return _checked_json
    if options.schema_file is None:
        raise BadFormatOption(f"{options.part}s in {options.format} need a schema file")
    try:
        if options.format is Format.PROTOBUF and settings is None:
            from ottla.formats.protobuf_writer import message_encoder

            return _encoded(message_encoder(_read_file(options.schema_file), options.message))
        text = _read_file(options.schema_file).decode()
        encoding = Encoding(options.format.value)
        if settings is None:
            return _encoded(encoder_of(encoding, text))
        writer = RegistryWriter(settings, encoding, strategy, options.part, text)
        writer.prepare(topic)
    except OSError as error:
        raise BadFormatOption(f"{options.schema_file}: {error.strerror}") from error
    except (BadSchema, UnicodeDecodeError) as error:
        raise BadFormatOption(f"{options.schema_file}: {error}") from error
    return _encoded(lambda datum: writer.encode(topic, datum))


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
