"""``ottla consume``: print the records of a topic."""

import asyncio
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from ottla.cli.commands.light_arrow import import_light_arrow
from ottla.cli.commands.message_format import (
    BadFormat,
    Printer,
    as_is,
    compile_format,
    envelope,
    for_terminal,
)
from ottla.cli.commands.message_input import BadInput, parse_delimiter
from ottla.cli.commands.record_options import (
    KeyFormatOption,
    KeySchemaFileOption,
    MessageOption,
    SchemaFileOption,
    ValueFormatOption,
)
from ottla.cli.connecting.session import with_cluster
from ottla.cli.options import (
    BOOTSTRAP_DEFAULT,
    INSTALL,
    BootstrapOption,
    RegistryOption,
    chosen,
    say,
)
from ottla.cli.terminal.completion import complete_topics
from ottla.cli.terminal.failures import fail
from ottla.cli.terminal.output import Output
from ottla.cli.terminal.progress import Progress
from ottla.cli.terminal.rendering import render_line
from ottla.client.cluster import Cluster
from ottla.client.consumer import ReaderOptions, open_reader
from ottla.client.fetched import Fetched
from ottla.client.group_consumer import GroupConsumer, Subscription
from ottla.client.offset_spec import BadOffset, OffsetSpec, parse_offset
from ottla.client.offsets import resolve
from ottla.operations.internal_topics import is_internal
from ottla.protocol.records.reader import Record
from ottla.protocol.types import Offset, TopicPartition
from ottla.runtime import system_calls
from ottla.runtime.clock import SystemClock

app = typer.Typer(add_completion=False)

COMMIT_EVERY_MS: Final = 1000


_TopicsArgument = Annotated[
    list[str],
    typer.Argument(
        help="The topics; a name that begins with ^ is a pattern.",
        autocompletion=complete_topics,
    ),
]
_OffsetOption = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--offset",
        "--output",
        help="From where: beginning, end, N, -N (before the end), @milliseconds. "
        "Also, how to print: table, json or yaml.",
    ),
]
_ExitOption = Annotated[
    bool,
    typer.Option(
        "-e",
        "--exit",
        help="Stop at the end of the partitions instead of waiting for more records.",
    ),
]
_UncommittedOption = Annotated[
    bool,
    typer.Option("--uncommitted", help="Include records of open and aborted transactions."),
]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What to read and when to stop."""

    topics: tuple[str, ...]
    partitions: tuple[int, ...]
    start: OffsetSpec
    count: int | None
    is_ended_at_end: bool
    is_committed_only: bool
    group: str | None = None


@app.command("consume")
def consume(  # noqa: PLR0913 - one per option
    context: typer.Context,
    topics: _TopicsArgument,
    *,
    offset: _OffsetOption = None,
    partition: Annotated[
        list[int] | None, typer.Option("-p", "--partition", min=0, help="Only these partitions.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("-g", "--group", help="Join this consumer group and commit offsets in it."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("-c", "--count", min=1, help="Stop after this many records.")
    ] = None,
    exit_at_end: _ExitOption = False,
    format_text: Annotated[
        str | None,
        typer.Option("-f", "--format", help="%t %p %o %k %s %h %T %K %S and \\n, \\t, \\xHH."),
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("-K", "--key-separator", help="Print key<separator>value.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("-J", "--json", help="Print one JSON object per line.")
    ] = False,
    uncommitted: _UncommittedOption = False,
    value_format: ValueFormatOption = "raw",
    key_format: KeyFormatOption = "raw",
    schema_file: SchemaFileOption = None,
    key_schema_file: KeySchemaFileOption = None,
    message: MessageOption = None,
    registry: RegistryOption = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Print records, from the beginning unless -o is given; runs until -e or -c ends it."""
    start, output = _split_offsets(offset or [])
    output = Output.JSON if as_json else chosen(context, output)
    printer = _printer(output, format_text, key_separator)
    if group is not None and partition:
        raise typer.BadParameter("not with --group, which assigns partitions", param_hint="-p")
    if (value_format, key_format) != ("raw", "raw"):
        formats = {
            "value": (value_format, schema_file, message),
            "key": (key_format, key_schema_file, None),
        }
        printer = _decoded(printer, formats, registry, bootstrap)
    wanted = _Wanted(
        tuple(topics), tuple(partition or ()), start, count, exit_at_end, not uncommitted, group
    )
    with_cluster(bootstrap, lambda cluster: _print_all(cluster, wanted, printer))


def _split_offsets(items: Sequence[str]) -> tuple[OffsetSpec, Output | None]:
    """Split the values of ``-o`` into offsets, as in kcat, and output formats."""
    start, output = parse_offset("beginning"), None
    for item in items:
        if item in set(Output):
            output = Output(item)
            continue
        try:
            start = parse_offset(item)
        except BadOffset as error:
            raise typer.BadParameter(str(error), param_hint="-o") from error
    return start, output


def _printer(output: Output, text: str | None, separator: str | None) -> Printer:
    if output is not Output.TABLE:
        return lambda at, record: render_line(envelope(at, record), output).encode()
    show = for_terminal if sys.stdout.isatty() else as_is
    try:
        if text is not None:
            return compile_format(text, show)
        key = b"" if separator is None else parse_delimiter(separator)
    except (BadFormat, BadInput) as error:
        raise typer.BadParameter(str(error)) from error
    if separator is None:
        return lambda at, record: show(record.value or b"") + b"\n"
    return lambda at, record: show(record.key or b"") + key + show(record.value or b"") + b"\n"


def _decoded(
    printer: Printer,
    formats: Mapping[str, tuple[str, str | None, str | None]],
    registry: str | None,
    bootstrap: str | None,
) -> Printer:
    """Return a printer of records whose keys and values are decoded first."""
    try:
        import_light_arrow()
        from ottla.cli.commands.record_formats import (
            FAILURES,
            FormatOptions,
            decoders,
            parse_format,
        )
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ottla"):
            raise
        fail(f"formats need the module {error.name}, which is not installed: {INSTALL}")
    options = [
        FormatOptions(
            part, parse_format(kind, f"--{part}-format"), file, message, registry, bootstrap
        )
        for part, (kind, file, message) in formats.items()
    ]
    decode = decoders(options)

    def show(at: TopicPartition, record: Record) -> bytes:
        try:
            return printer(at, decode(at.topic, record))
        except FAILURES as error:
            fail(str(error))
        except ValueError as error:
            fail(f"{at} at offset {record.offset}: {error}")

    return show


async def _print_all(cluster: Cluster, wanted: _Wanted, printer: Printer) -> None:
    is_shown = sys.stderr.isatty() and not sys.stdout.isatty()
    progress = Progress(SystemClock(), "read", is_shown=is_shown)
    stop = asyncio.Event()
    system_calls.on_signal(signal.SIGINT, stop.set)
    try:
        if wanted.group is None:
            await _read_partitions(cluster, wanted, _Print(printer, progress, wanted.count), stop)
        else:
            await _read_in_group(cluster, wanted, _Print(printer, progress, wanted.count), stop)
    finally:
        progress.clear()
    if is_shown:
        say(progress.text())


async def _read_partitions(
    cluster: Cluster, wanted: _Wanted, printing: "_Print", stop: asyncio.Event
) -> None:
    """Read partitions without a group, and commit nothing."""
    partitions = await _partitions(cluster, wanted)
    committed = wanted.is_committed_only
    specs = dict.fromkeys(partitions, wanted.start)
    positions = await resolve(cluster, specs, is_committed_only=committed)
    options = ReaderOptions(is_committed_only=committed)
    async with open_reader(cluster, positions, options) as reader:
        while not stop.is_set():
            if printing.take(await reader.poll()) or (wanted.is_ended_at_end and reader.is_at_end):
                return


async def _read_in_group(
    cluster: Cluster, wanted: _Wanted, printing: "_Print", stop: asyncio.Event
) -> None:
    """Read as a member of a group; offsets are committed once their records are printed."""
    assert wanted.group is not None
    patterns = [each for each in wanted.topics if each.startswith("^")]
    if patterns and len(patterns) < len(wanted.topics):
        raise typer.BadParameter("with --group give either patterns or names", param_hint="TOPICS")
    regex = "|".join(f"(?:{each[1:]})" for each in patterns) or None
    subscription = Subscription(wanted.group, wanted.topics, regex, wanted.start)
    options = ReaderOptions(is_committed_only=wanted.is_committed_only)
    consumer = GroupConsumer(cluster, subscription, options)
    clock, committed_at = SystemClock(), 0
    try:
        while not stop.is_set():
            is_enough = printing.take(await consumer.poll(), consumer.stop_at)
            if is_enough or (wanted.is_ended_at_end and consumer.is_at_end):
                break
            if clock.monotonic() - committed_at >= COMMIT_EVERY_MS:
                await consumer.commit()
                committed_at = clock.monotonic()
        await consumer.commit()
    finally:
        await consumer.leave()


@dataclass(slots=True)
class _Print:
    """Prints records until ``count`` of them."""

    printer: Printer
    progress: Progress
    count: int | None

    def take(
        self,
        found: Sequence[Fetched],
        stopped: Callable[[TopicPartition, Offset], None] | None = None,
    ) -> bool:
        """Print records; True once there are enough. ``stopped`` gets the next offset then."""
        out = sys.stdout.buffer
        for fetched in found:
            for record in fetched.records():
                out.write(self.printer(fetched.partition, record))
                self.progress.add(len(record.value or b"") + len(record.key or b""))
                if self.progress.records == self.count:
                    if stopped is not None:
                        _rewind(found, fetched, Offset(record.offset + 1), stopped)
                    out.flush()
                    return True
        out.flush()
        return False


def _rewind(
    found: Sequence[Fetched],
    last: Fetched,
    after: Offset,
    stopped: Callable[[TopicPartition, Offset], None],
) -> None:
    """Report where reading stopped: records that were fetched and not printed are not committed."""
    is_later = False
    for fetched in found:
        if fetched is last:
            stopped(fetched.partition, after)
            is_later = True
        elif is_later:
            stopped(fetched.partition, fetched.offset)


async def _partitions(cluster: Cluster, wanted: _Wanted) -> list[TopicPartition]:
    return [
        TopicPartition(name, number)
        for name in await _topics(cluster, wanted.topics)
        for number in wanted.partitions or (await cluster.topic(name)).partitions
    ]


async def _topics(cluster: Cluster, given: Sequence[str]) -> list[str]:
    """Return the topics of names and patterns; a pattern matches whole names, not internal ones."""
    if not any(each.startswith("^") for each in given):
        return list(given)
    there = (await cluster.metadata(None)).topics
    known = [each.name for each in there if each.name is not None and not is_internal(each)]
    found: dict[str, None] = {}
    for each in given:
        if not each.startswith("^"):
            found[each] = None
            continue
        try:
            matching = [name for name in known if re.fullmatch(each, name)]
        except re.error as error:
            raise typer.BadParameter(f"{each!r}: {error}", param_hint="TOPICS") from error
        if not matching:
            fail(f"no topic matches {each!r}")
        found.update(dict.fromkeys(matching))
    return list(found)
