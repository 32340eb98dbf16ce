"""What the headers of a dead letter say, by the conventions of those who write them. Pure.

    kafka     __dlq.errors.*                 share groups (KIP-1191)
    ottla     _dlq.errors.*, ottla.*         share groups before it, tables and sinks
    connect   __connect.errors.*             Kafka Connect (KIP-298)
    streams   __streams.errors.*             Kafka Streams (KIP-1034)
    spring    kafka_dlt-*                    Spring for Apache Kafka: numbers are binary

A letter is read by the first convention whose header for the topic of origin it has.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.protocol.records.reader import Header, Record
from ottla.protocol.types import Offset, TopicPartition

REDRIVES: Final = "ottla.dlq.redrives"
"""The header that counts how often a record was sent back."""

_UNKNOWN: Final = "unknown"


class Convention(NamedTuple):
    """The names of headers, after a common prefix; empty for one that is not written."""

    name: str
    prefix: str
    topic: str = "topic"
    partition: str = "partition"
    offset: str = "offset"
    group: str = ""
    deliveries: str = ""
    reason: str = ""
    is_binary: bool = False


CONVENTIONS: Final = (
    Convention("kafka", "__dlq.errors.", group="group", deliveries="delivery.count",
               reason="message"),
    Convention("ottla", "_dlq.errors.", group="group", deliveries="delivery.count",
               reason="reason"),
    Convention("ottla", "ottla.", reason="reason"),
    Convention("connect", "__connect.errors.", group="connector.name",
               reason="exception.message"),
    Convention("streams", "__streams.errors.", reason="message"),
    Convention("spring", "kafka_dlt-", "original-topic", "original-partition", "original-offset",
               "original-consumer-group", reason="exception-message", is_binary=True),
)  # fmt: skip


class DeadLetter(NamedTuple):
    """A dead letter and its origin; parts that its headers do not tell are None."""

    at: TopicPartition
    record: Record
    convention: Convention | None
    topic: str | None = None
    partition: int | None = None
    offset: Offset | None = None
    group: str | None = None
    deliveries: int | None = None
    reason: str = _UNKNOWN
    redrives: int = 0

    @property
    def has_content(self) -> bool:
        """Whether it contains the record, not only its position."""
        return self.record.key is not None or self.record.value is not None


def conventions_named(name: str | None) -> Sequence[Convention]:
    """Return the conventions of a name; all for None. Raises ValueError."""
    found = [each for each in CONVENTIONS if name in (None, each.name)]
    if not found:
        names = ", ".join(dict.fromkeys(each.name for each in CONVENTIONS))
        raise ValueError(f"{name} is unknown; use one of {names}")
    return found


def read_letter(
    at: TopicPartition, record: Record, conventions: Sequence[Convention] = CONVENTIONS
) -> DeadLetter:
    """Return what the headers of a record say."""
    headers = {header.key: header.value for header in record.headers}
    redrives = _number(headers.get(REDRIVES), is_binary=False) or 0
    for each in conventions:
        topic = headers.get(each.prefix + each.topic)
        if topic is not None:
            offset = _number(headers.get(each.prefix + each.offset), each.is_binary)
            return DeadLetter(
                at,
                record,
                each,
                topic.decode(errors="replace"),
                _number(headers.get(each.prefix + each.partition), each.is_binary),
                None if offset is None else Offset(offset),
                _text(headers, each, each.group),
                _number(headers.get(each.prefix + each.deliveries), is_binary=False),
                _text(headers, each, each.reason) or _UNKNOWN,
                redrives,
            )
    return DeadLetter(at, record, None, redrives=redrives)


def own_headers(letter: DeadLetter) -> list[Header]:
    """Return the headers that the other parts of a letter do not tell."""
    told = {REDRIVES}
    if letter.convention is not None:
        _, prefix, *names, _ = letter.convention
        told |= {prefix + name for name in names if name}
    return [header for header in letter.record.headers if header.key not in told]


def redriven(letter: DeadLetter, content: Record, offset: Offset) -> Record:
    """Return the record to send back: key, value and own headers, and a raised count."""
    prefix = "" if letter.convention is None else letter.convention.prefix
    kept = tuple(
        header
        for header in content.headers
        if header.key != REDRIVES and not (prefix and header.key.startswith(prefix))
    )
    count = Header(REDRIVES, str(letter.redrives + 1).encode())
    return Record(offset, letter.record.timestamp, content.key, content.value, (*kept, count))


def _text(headers: dict[str, bytes | None], each: Convention, name: str) -> str | None:
    value = headers.get(each.prefix + name) if name else None
    return None if value is None else value.decode(errors="replace")


def _number(value: bytes | None, is_binary: bool) -> int | None:
    if value is None:
        return None
    if is_binary:
        return int.from_bytes(value, signed=True)
    try:
        return int(value)
    except ValueError:
        return None
