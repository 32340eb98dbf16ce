"""``ottla produce``: write lines or JSON to a topic."""

import asyncio
import errno
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from ottla.cli.commands.light_arrow import import_light_arrow
from ottla.cli.commands.message_input import (
    BadInput,
    Message,
    Splitter,
    parse_delimiter,
    parse_envelope,
    parse_line,
)
from ottla.cli.commands.record_options import (
    SchemaFileOption,
    SchemaIdOption,
    StrategyOption,
    ValueFormatOption,
)
from ottla.cli.connecting.pairs import parse_pairs
from ottla.cli.connecting.session import permission_hint, with_cluster
from ottla.cli.options import (
    BOOTSTRAP_DEFAULT,
    INSTALL,
    BootstrapOption,
    OutputOption,
    RegistryOption,
    answer,
    say,
)
from ottla.cli.terminal.completion import complete_topics
from ottla.cli.terminal.failures import fail
from ottla.cli.terminal.progress import Progress
from ottla.cli.terminal.rendering import Row
from ottla.client.accumulator import RecordMetadata
from ottla.client.cluster import Cluster, Refused
from ottla.client.producer import ACKS_ALL, Producer, ProducerOptions, Report, open_producer
from ottla.operations.counting import plural, were
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode, name_of_code
from ottla.protocol.records.batch import Compression
from ottla.protocol.records.reader import Header
from ottla.runtime import system_calls
from ottla.runtime.clock import SystemClock

_CHUNK_BYTES: Final = 1 << 16
REASONS_MAX: Final = 10
"""Records whose reasons are printed."""

app = typer.Typer(add_completion=False)


class Acks(StrEnum):
    """Which replicas must have a record before it counts as delivered."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"

    @property
    def number(self) -> int:
        """The protocol's value."""
        return ACKS_ALL if self is Acks.ALL else int(self)


@dataclass(frozen=True, slots=True)
class _Schema:
    """The options about the schema of values."""

    format: str
    file: str | None
    registry: str | None
    strategy: str
    place: str
    bootstrap: str | None


class Codec(StrEnum):
    """Compression of the batches."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


@dataclass(slots=True)
class _Tally:
    """Results of the records sent."""

    failed: int = 0
    first: Refused | None = None
    reasons: dict[int, str] = field(default_factory=dict)
    partitions: dict[int, list[int]] = field(default_factory=dict)
    is_new_topic: bool = False
    """Whether the topic did not exist before."""

    def take(self, number: int, report: Report) -> None:
        """Count the record of a number, from 1 on, whose result is known."""
        if report.cancelled():
            return
        error = report.exception()
        if error is not None:
            self.failed += 1
            if isinstance(error, Refused):
                self.first = self.first or error
            if len(self.reasons) < REASONS_MAX:
                self.reasons[number] = str(error) or type(error).__name__
            return
        delivered: RecordMetadata = report.result()
        seen = self.partitions.setdefault(delivered.partition.partition, [0, -1, -1])
        seen[0] += 1
        if delivered.offset >= 0:
            seen[1] = delivered.offset if seen[1] < 0 else min(seen[1], delivered.offset)
            seen[2] = max(seen[2], delivered.offset)

    def text(self, hint: str = "") -> str:
        """Return why records were not delivered: a line for each of the first ones, and a sum."""
        lines = [f"record {number}: {reason}" for number, reason in sorted(self.reasons.items())]
        more = self.failed - len(lines)
        lines += [f"and {plural(more, 'more record')}"] if more else []
        return "\n".join([*lines, f"{were(self.failed, 'record')} not delivered{hint}"])

    def rows(self) -> list[Row]:
        """Return the offsets of the delivered records, by partition."""
        return [
            {
                "partition": partition,
                "records": count,
                "first_offset": first if first >= 0 else None,
                "last_offset": last if last >= 0 else None,
            }
            for partition, (count, first, last) in sorted(self.partitions.items())
        ]


_KeySeparatorOption = Annotated[
    str | None,
    typer.Option("-K", "--key-separator", help="Separator of key and value."),
]
_HeaderOption = Annotated[
    list[str] | None,
    typer.Option("-H", "--header", help="A header, name=value."),
]
_CompressionOption = Annotated[
    Codec, typer.Option("-z", "--compression", help="Compression of the batches.")
]
_AcksOption = Annotated[Acks, typer.Option("-a", "--acks", help="Acknowledgements to wait for.")]
_PartitionOption = Annotated[
    int | None, typer.Option("-p", "--partition", min=0, help="Partition of all records.")
]
_JsonOption = Annotated[
    bool, typer.Option("-J", "--json", help="Read JSON lines, as `consume -J` prints them.")
]


@app.command("produce")
def produce(  # noqa: PLR0913 - one per option
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="The topic.", autocompletion=complete_topics)],
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files to send; default: stdin.")
    ] = None,
    *,
    key_separator: _KeySeparatorOption = None,
    key: Annotated[str | None, typer.Option("-k", "--key", help="Key of all records.")] = None,
    header: _HeaderOption = None,
    partition: _PartitionOption = None,
    json_input: _JsonOption = False,
    null_empty: Annotated[
        bool, typer.Option("-Z", "--null", help="Send an empty key or value as null.")
    ] = False,
    delimiter: Annotated[
        str, typer.Option("-D", "--delimiter", help="Delimiter of messages.")
    ] = "\\n",
    compression: _CompressionOption = Codec.NONE,
    acks: _AcksOption = Acks.ALL,
    value_format: ValueFormatOption = "raw",
    schema_file: SchemaFileOption = None,
    registry: RegistryOption = None,
    subject_strategy: StrategyOption = "topic",
    schema_id: SchemaIdOption = "prefix",
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Send each line of stdin or of the files as a record."""
    headers = tuple(
        Header(name, value.encode()) for name, value in parse_pairs(header, "--header").items()
    )
    separator = None if key_separator is None else _delimiter(key_separator, "-K")
    defaults = Message(None, None if key is None else key.encode(), headers, partition)

    encode = None
    if value_format != "raw":
        place = (registry, subject_strategy, schema_id, bootstrap)
        encode = _encoder(topic, _Schema(value_format, schema_file, *place))

    def parse(line: bytes) -> Message:
        if json_input:
            found = parse_envelope(line)
        else:
            found = parse_line(line, separator, is_empty_null=null_empty)
        return found if encode is None else encode(found)

    options = ProducerOptions(
        acks=acks.number,
        is_idempotent=acks is Acks.ALL,
        compression=Compression[compression.name],
    )
    source = _Source(tuple(files or ()), _delimiter(delimiter, "-D"), parse, defaults)
    tally = with_cluster(bootstrap, lambda cluster: _send_all(cluster, topic, source, options))
    if output is not None:
        answer(context, output, tally.rows())
    if tally.failed:
        _fail(tally)


def _fail(tally: _Tally) -> NoReturn:
    """Report records that were not delivered, and the right that was missing if it was that."""
    refused = tally.first
    if refused is None:
        fail(tally.text())
    fail(tally.text(permission_hint(refused, ApiKey.PRODUCE)), name_of_code(refused.code))


def _encoder(topic: str, schema: _Schema) -> Callable[[Message], Message]:
    """Return a function that encodes the value of a message by a schema."""
    if schema.place not in ("prefix", "header"):
        raise typer.BadParameter("must be prefix or header", param_hint="--schema-id")
    try:
        import_light_arrow()
        from ottla.cli.commands.record_formats import (
            FAILURES,
            FormatOptions,
            encoder_for,
            parse_format,
            parse_subject_strategy,
        )
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ottla"):
            raise
        fail(f"formats need the module {error.name}, which is not installed: {INSTALL}")
    options = FormatOptions(
        "value",
        parse_format(schema.format, "--value-format"),
        schema.file,
        None,
        schema.registry,
        schema.bootstrap,
        schema.place == "header",
    )
    try:
        encode = encoder_for(topic, options, parse_subject_strategy(schema.strategy))
    except FAILURES as error:
        fail(str(error))

    def encoded(message: Message) -> Message:
        if encode is None or message.value is None:
            return message
        try:
            value, headers = encode(message.value)
            return replace(message, value=value, headers=(*message.headers, *headers))
        except ValueError as error:
            raise BadInput(f"{message.value[:60]!r}: {error}") from error
        except FAILURES as error:
            raise BadInput(str(error)) from error

    return encoded


def _delimiter(text: str, option: str) -> bytes:
    try:
        return parse_delimiter(text)
    except BadInput as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


@dataclass(frozen=True, slots=True)
class _Source:
    """Where messages come from and how they are parsed."""

    files: tuple[Path, ...]
    delimiter: bytes
    parse: Callable[[bytes], Message]
    defaults: Message

    async def messages(self) -> AsyncIterator[Message]:
        for opened in _inputs(self.files):
            splitter = Splitter(self.delimiter)
            while data := await _read(opened):
                for line in splitter.feed(data):
                    yield with_defaults(self.parse(line), self.defaults)
            for line in splitter.finish():
                yield with_defaults(self.parse(line), self.defaults)


def with_defaults(message: Message, defaults: Message) -> Message:
    """Apply the options for all records. --partition overrides a message's own."""
    return Message(
        message.value,
        defaults.key if message.key is None else message.key,
        message.headers + defaults.headers,
        message.partition if defaults.partition is None else defaults.partition,
        message.timestamp,
    )


def _inputs(files: tuple[Path, ...]) -> Iterator[int]:
    if not files:
        yield sys.stdin.fileno()
    for path in files:
        with _opened(path) as descriptor:
            yield descriptor


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = system_calls.open_file(path, os.O_RDONLY)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def _read(descriptor: int) -> bytes:
    """Read what is available, waiting without blocking the event loop; files never wait."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except PermissionError:
        return os.read(descriptor, _CHUNK_BYTES)
    except NotImplementedError:  # Windows
        return await asyncio.to_thread(os.read, descriptor, _CHUNK_BYTES)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, _CHUNK_BYTES)


async def _send_all(
    cluster: Cluster, topic: str, source: _Source, options: ProducerOptions
) -> _Tally:
    tally = _Tally(is_new_topic=await _is_missing(cluster, topic))
    # A progress line would disturb typing if stdin is a terminal.
    is_shown = sys.stderr.isatty() and not sys.stdin.isatty()
    progress = Progress(SystemClock(), "sent", is_shown=is_shown)
    try:
        async with open_producer(cluster, options) as producer:
            async for message in source.messages():
                await _send(producer, topic, message, partial(tally.take, progress.records + 1))
                progress.add(len(message.value or b"") + len(message.key or b""))
    except BadInput as error:
        fail(f"{error}; {were(progress.records, 'record')} accepted before it")
    except Refused as error:
        if not tally.is_new_topic:
            raise
        # The topic could be described: the right to create it is missing, if any.
        fail(f"{error}{permission_hint(error, ApiKey.CREATE_TOPICS)}", name_of_code(error.code))
    finally:
        progress.clear()
    if sys.stderr.isatty():
        say(progress.text())
    if tally.is_new_topic and tally.partitions:
        count = len((await cluster.topic(topic)).partitions)
        say(f"created topic {topic} with {plural(count, 'partition')}: it did not exist")
    return tally


async def _is_missing(cluster: Cluster, topic: str) -> bool:
    """Return whether a topic does not exist; then the first record may create it."""
    (found,) = (await cluster.metadata([topic])).topics
    return found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _send(
    producer: Producer, topic: str, message: Message, take: Callable[[Report], None]
) -> None:
    report = await producer.send(
        topic,
        message.value,
        key=message.key,
        headers=message.headers,
        partition=message.partition,
        timestamp=message.timestamp,
    )
    report.add_done_callback(take)
