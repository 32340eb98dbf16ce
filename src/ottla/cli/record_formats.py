"""Formats of keys and values for ``ottla consume`` and ``ottla produce``.

Decoded keys and values are printed as JSON; JSON lines are encoded. Schemas are in a file (Avro, or
a descriptor set of Protobuf), or in a schema registry, whose wire format is then read and
written.
"""

import json
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec
import typer

from ottla.cli.registry_option import registry_settings
from ottla.cli.rendering import Plain
from ottla.cli.sql_output import plain
from ottla.pipeline.avro_values import BadSchema
from ottla.pipeline.registry import RegistryFailed, UnknownSchema
from ottla.pipeline.registry_values import subject_values
from ottla.pipeline.registry_writer import RegistryWriter, encoder_of
from ottla.pipeline.sql_topics import BadFormatOption, PartOptions, values_of
from ottla.pipeline.sql_values import Format
from ottla.pipeline.subjects import Encoding, SubjectStrategy, parse_strategy
from ottla.protocol.records.reader import Record

Decode = Callable[[bytes], bytes]
_TEXTUAL: Final = (Format.RAW, Format.TEXT, Format.JSON, Format.AUTO)


class Values(Protocol):
    """Decodes keys or values of one schema."""

    def decode(self, value: bytes) -> dict[str, object]:
        """Return the fields. Raises ValueError."""
        ...


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
        return _as_json(values_of(topic, options.part, part))
    found: list[Values] = []  # made for the first value: it may name a schema of another subject

    def decode(data: bytes) -> bytes:
        if not found:
            try:
                found.append(subject_values(settings, f"{topic}-{options.part}", data))
            except (UnknownSchema, BadSchema) as error:
                raise ValueError(str(error)) from error
        return _json_of(found[0].decode(data))

    return decode


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


def _as_json(values: Values) -> Decode:
    return lambda data: _json_of(values.decode(data))


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
            from ottla.pipeline.protobuf_writer import message_encoder

            with open(options.schema_file, "rb") as descriptors:
                return _encoded(message_encoder(descriptors.read(), options.message))
        with open(options.schema_file, encoding="utf-8") as file:
            text = file.read()
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
