"""Undeliverable records in the form for a group's dead-letter topic (KIP-1191).

    key, value   those of the record, if the group wants copies; else none
    headers      those of the record, if the group wants copies, and these:
                 _dlq.errors.group, .topic, .partition, .offset    where it was
                 _dlq.errors.delivery.count, .reason               why it is here

Pure. A record may be written twice, if its leader fails before the write is confirmed; it is not
lost, unless the topic rejects it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from ottla.protocol.records.reader import Header, Record
from ottla.protocol.types import Millis, Offset
from ottla.sharing.acquisition import DeadRecords
from ottla.sharing.ports import DeadLetterConfig

PREFIX: Final = "_dlq.errors."
REJECTED: Final = "rejected"
USED_UP: Final = "delivery count limit reached"


class Origin(NamedTuple):
    """The group and the partition of the records."""

    group_id: str
    topic: str
    partition: int


def dead_letters(
    origin: Origin, found: Iterable[Record], dead: Sequence[DeadRecords], terms: DeadLetterConfig
) -> list[Record]:
    """Return the records to write for the dead ones among ``found``, in their order.

    Timestamps are kept; offsets count from 0, as in any batch that is sent.
    """
    named = ((record, each) for record in found for each in dead if _is_in(record.offset, each))
    return [
        _letter(origin, record, each, terms, Offset(number))
        for number, (record, each) in enumerate(named)
    ]


def _is_in(offset: Offset, dead: DeadRecords) -> bool:
    return dead.first <= offset <= dead.last


def _letter(
    origin: Origin, record: Record, dead: DeadRecords, terms: DeadLetterConfig, offset: Offset
) -> Record:
    headers = tuple(_headers(origin, record.offset, dead))
    timestamp = Millis(max(0, record.timestamp))
    if not terms.copies_record:
        return Record(offset, timestamp, None, None, headers)
    return Record(offset, timestamp, record.key, record.value, (*record.headers, *headers))


def _headers(origin: Origin, offset: Offset, dead: DeadRecords) -> Iterator[Header]:
    replies = {
        "group": origin.group_id,
        "topic": origin.topic,
        "partition": str(origin.partition),
        "offset": str(offset),
        "delivery.count": str(dead.deliveries),
        "reason": USED_UP if dead.is_used_up else REJECTED,
    }
    for name, text in replies.items():
        yield Header(f"{PREFIX}{name}", text.encode())
