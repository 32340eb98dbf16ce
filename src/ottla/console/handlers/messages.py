"""Messages of a topic: lists, one record, live tail, downloads, and sending."""

import asyncio
import csv
import io
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from ottla.client.consumer import open_reader
from ottla.client.offset_spec import BEGINNING, END, AtOffset, AtTime, BeforeEnd, OffsetSpec
from ottla.client.offsets import resolve
from ottla.client.producer import ProducerOptions, open_producer
from ottla.console.browsing import (
    OPTIONS,
    RECORDS_MAX,
    Found,
    bounds_of,
    partitions_of,
    read_from,
    read_one,
)
from ottla.console.decoding import decoder_of
from ottla.console.endpoints import Call, Done, Download, Events, Rejected
from ottla.console.record_views import (
    LIST_CHARACTERS_MAX,
    RECORD_CHARACTERS_MAX,
    csv_cells,
    record_view,
)
from ottla.console.segments import path_of
from ottla.operations.reset_plan import BadReset, parse_time
from ottla.operations.rows import Row
from ottla.protocol.records.reader import Header
from ottla.protocol.types import TopicPartition

RECORDS_DEFAULT: Final = 50
STARTS: Final = ("newest", "beginning", "offset", "time")
TAIL_RECORDS_MAX: Final = 50
"""Records of one event of a live tail; the others are counted."""
TAIL_S_MAX: Final = 3_600.0
HEADERS_SENT_MAX: Final = 100


def _partition(call: Call) -> int | None:
    number = call.number("partition", -1, low=-1, high=1_000_000)
    return None if number < 0 else number


def start_of(call: Call) -> OffsetSpec:
    """Return where a list of records begins. Raises `Rejected`."""
    match call.one_of("start", STARTS):
        case "newest":
            return BeforeEnd(1)
        case "beginning":
            return BEGINNING
        case "offset":
            return AtOffset(call.number("offset", 0))
        case _:
            return AtTime(parse_moment(call.required("time")))


def parse_moment(text: str) -> int:
    """Return milliseconds since 1970 of a number, or of a time in UTC. Raises `Rejected`."""
    if text.isascii() and text.isdigit() and len(text) < 16:
        return int(text)
    try:
        return parse_time(text)
    except BadReset as error:
        raise Rejected(400, str(error)) from error


async def messages(call: Call) -> Row:
    """Return some records of a topic."""
    topic = call.names["topic"]
    limit = call.number("limit", RECORDS_DEFAULT, low=1, high=RECORDS_MAX)
    places = await partitions_of(call.cluster, topic, None)
    partition = _partition(call)
    chosen = [place for place in places if partition in (None, place.partition)]
    if not chosen:
        raise Rejected(404, f"{topic} has no partition {partition}")
    start = start_of(call)
    records = await read_from(call.cluster, chosen, start, limit)
    rows = await _views(call, topic, records, LIST_CHARACTERS_MAX)
    is_newest = isinstance(start, BeforeEnd)
    return {
        "topic": topic,
        "partitions": [place.partition for place in places],
        "partition": partition,
        "start": call.one_of("start", STARTS),
        "offset": call.text("offset"),
        "time": call.text("time"),
        "limit": limit,
        "records": rows[::-1] if is_newest else rows,
        "next_offset": _next_offset(records, chosen, is_newest),
    }


def _next_offset(records: list[Found], chosen: list[TopicPartition], is_newest: bool) -> int | None:
    """Return where the next page of one partition begins; None if there is none."""
    if is_newest or len(chosen) != 1 or not records:
        return None
    return records[-1][1].offset + 1


async def _views(call: Call, topic: str, records: list[Found], characters_max: int) -> list[Row]:
    """Return records as rows; decoding may ask the registry, so it is done on a thread."""

    def views() -> list[Row]:
        decode = decoder_of(topic, call.user.registry)
        return [record_view(place, record, characters_max, decode) for place, record in records]

    return await call.context.worker.run(views)


async def message(call: Call) -> Row:
    """Return one record."""
    place = TopicPartition(call.names["topic"], _number(call, "partition"))
    offset = _number(call, "offset")
    await partitions_of(call.cluster, place.topic, place.partition)
    record = await read_one(call.cluster, place, offset)
    if record is None:
        first, end = (await bounds_of(call.cluster, [place], is_committed_only=True))[place]
        raise Rejected(
            404, f"{place} has no record at offset {offset}; it has offsets {first} to {end - 1}."
        )
    (row,) = await _views(call, place.topic, [(place, record)], RECORD_CHARACTERS_MAX)
    return row


def _number(call: Call, name: str) -> int:
    text = call.names[name]
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise Rejected(404, f"{name} must be a number")
    return int(text)


# -- downloads and live tail ---------------------------------------------------------


async def download(call: Call) -> Download:
    """Return the records of a list as a file."""
    kind = call.one_of("format", ("jsonl", "csv"))
    listed = await messages(call)
    rows: Any = listed["records"]
    topic = call.names["topic"]

    async def parts() -> AsyncIterator[bytes]:
        if kind == "csv":
            yield _csv_line(["partition", "offset", "timestamp", "key", "value", "headers"])
        for row in rows:
            yield _csv_line(csv_cells(row)) if kind == "csv" else msgspec.json.encode(row) + b"\n"
            await asyncio.sleep(0)

    media = "text/csv; charset=utf-8" if kind == "csv" else "application/x-ndjson"
    return Download(media, f"{topic}.{kind}", parts())


def _csv_line(cells: list[str]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow(cells)
    return out.getvalue().encode("utf-8", "backslashreplace")


async def tail(call: Call) -> Events:
    """Send records as they are written."""
    topic = call.names["topic"]
    places = await partitions_of(call.cluster, topic, _partition(call))
    starts = await resolve(call.cluster, dict.fromkeys(places, END))

    async def rows() -> AsyncIterator[tuple[str, Row]]:
        loop = asyncio.get_running_loop()
        stop_at = loop.time() + TAIL_S_MAX
        yield "open", {"topic": topic, "records": [], "skipped": 0}
        async with open_reader(call.cluster, starts, OPTIONS) as reader:
            while loop.time() < stop_at:
                fetched = await reader.poll()
                records = [
                    (each.partition, record) for each in fetched for record in each.records()
                ]
                shown = records[-TAIL_RECORDS_MAX:]
                views = await _views(call, topic, shown, LIST_CHARACTERS_MAX)
                skipped = len(records) - len(shown)
                yield "records", {"topic": topic, "records": views[::-1], "skipped": skipped}

    return Events(rows(), "tail.html")


# -- sending -------------------------------------------------------------------------


async def produce(call: Call) -> Done:
    """Send a record."""
    topic = call.names["topic"]
    headers = parse_headers(call.values.get("headers"))
    key = None if call.flag("null_key") else _data(call.raw("key"))
    value = None if call.flag("null_value") else _data(call.raw("value") or "")
    if call.one_of("format", ("text", "json")) == "json":
        _check_json(value)
    await partitions_of(call.cluster, topic, _partition(call))
    options = ProducerOptions(may_create_topics=False)
    async with open_producer(call.cluster, options) as producer:
        report = await producer.send(
            topic, value, key=key or None, headers=headers, partition=_partition(call)
        )
        await producer.flush()
        sent = await report
    place = f"{topic}-{sent.partition.partition}"
    return Done(
        f"Sent to {place}, offset {sent.offset}.",
        path_of("/topics", topic, "messages", str(sent.partition.partition)) + f"/{sent.offset}",
        {"topic": topic, "partition": sent.partition.partition, "offset": sent.offset},
    )


def _data(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogatepass")


def _check_json(value: bytes | None) -> None:
    try:
        msgspec.json.decode(value or b"null")
    except (msgspec.DecodeError, RecursionError) as error:
        raise Rejected(400, f"The value is not JSON: {error}") from error


def parse_headers(value: object) -> tuple[Header, ...]:
    """Parse lines ``name=value``, or an object of JSON. Raises `Rejected`."""
    if isinstance(value, dict):
        pairs = [(str(name), str(text)) for name, text in value.items()]
    else:
        pairs = []
        for line in str(value or "").splitlines():
            name, separator, text = line.partition("=")
            if line.strip() and not separator:
                raise Rejected(400, f"{line[:100]!r} must be name=value")
            if separator:
                pairs.append((name.strip(), text.strip()))
    if len(pairs) > HEADERS_SENT_MAX:
        raise Rejected(400, f"A record has at most {HEADERS_SENT_MAX} headers here.")
    return tuple(Header(name, text.encode("utf-8", "surrogatepass")) for name, text in pairs)


async def resend(call: Call) -> Row:
    """Return one record in the form for sending it again, with changes."""
    return await message(call)
