"""Undeliverable records in the form for a group's dead-letter topic (KIP-1191).

    key, value   those of the record, if the group wants copies; else none
    headers      those of the record, if the group wants copies, and these:
                 __dlq.errors.topic, .partition, .offset, .group    where it was
                 __dlq.errors.delivery.count, .message              why it is here

Pure. The timestamp is the time of writing, so that retention counts from there. A record that is no
longer in its log becomes a dead letter without key and value.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final

from ottla.protocol.records.reader import Header, Record
from ottla.protocol.types import Millis, Offset
from ottla.sharing.acquisition import DeadRecords
from ottla.sharing.ports import DeadLetterConfig, Origin

PREFIX: Final = "__dlq.errors."
TOPIC: Final = f"{PREFIX}topic"
PARTITION: Final = f"{PREFIX}partition"
OFFSET: Final = f"{PREFIX}offset"
GROUP: Final = f"{PREFIX}group"
DELIVERY_COUNT: Final = f"{PREFIX}delivery.count"
MESSAGE: Final = f"{PREFIX}message"

# Kafka's words: clients compare them.
REJECTED: Final = "Offset rejected by client."
USED_UP: Final = "Offset delivery count exceeded the threshold."


def dead_letters(
    origin: Origin,
    records: Iterable[Record],
    dead: Sequence[DeadRecords],
    terms: DeadLetterConfig,
    now: Millis,
) -> list[Record]:
    """Return the records to write for the dead ones among ``records``, in their order.

    Offsets count from 0, as in any batch that is sent.
    """
    pairs = ((record, run) for record in records for run in dead if _is_in(record.offset, run))
    return [
        _letter(record, tuple(_headers(origin, record.offset, run)), terms, Offset(number), now)
        for number, (record, run) in enumerate(pairs)
    ]


def origin_offset(letter: Record, origin: Origin) -> Offset | None:
    """Return the offset of the record that a dead letter stands for, if it is of this origin."""
    headers = {header.key: header.value for header in letter.headers}
    if (headers.get(GROUP), headers.get(TOPIC), headers.get(PARTITION)) != (
        origin.group_id.encode(),
        origin.topic.encode(),
        str(origin.partition).encode(),
    ):
        return None
    try:
        return Offset(int(headers.get(OFFSET) or b""))
    except ValueError:
        return None


def without(letters: Iterable[Record], origin: Origin, written: Container[Offset]) -> list[Record]:
    """Return the letters that are not among those written before."""
    left = [letter for letter in letters if origin_offset(letter, origin) not in written]
    return [letter._replace(offset=Offset(number)) for number, letter in enumerate(left)]


def _is_in(offset: Offset, run: DeadRecords) -> bool:
    return run.first <= offset <= run.last


def _letter(
    record: Record,
    headers: tuple[Header, ...],
    terms: DeadLetterConfig,
    offset: Offset,
    now: Millis,
) -> Record:
    if not terms.copies_record:
        return Record(offset, now, None, None, headers)
    return Record(offset, now, record.key, record.value, (*record.headers, *headers))


def _headers(origin: Origin, offset: Offset, run: DeadRecords) -> Iterator[Header]:
    texts = {
        TOPIC: origin.topic,
        PARTITION: str(origin.partition),
        OFFSET: str(offset),
        GROUP: origin.group_id,
        DELIVERY_COUNT: str(run.deliveries),
        MESSAGE: USED_UP if run.is_used_up else REJECTED,
    }
    for name, text in texts.items():
        yield Header(name, text.encode())
