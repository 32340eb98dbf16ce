"""Offsets as values: what Spark keeps of a stream, and where reading begins and ends. Pure.

One offset of a stream, as it stands in the checkpoint and in a query's progress:

    {"version": 1, "group": "billing",
     "topics": {"orders": {"id": "tQ3...", "start": {"0": 5, "1": 0}, "end": {"0": 9, "1": 3},
                           "pieces": {"0": 2}}}}

``end`` is where the batch ends that this offset closes, ``start`` where the same batch begins,
``id`` which topic of that name was read. Spark replays its first batch from an initial offset that
it asks for anew: were the start not kept here, ``startingOffsets=latest`` would lose or repeat
rows.

``pieces`` is the number of Spark partitions that each range is cut into; a partition that is not
listed is one piece. An exactly-once sink remembers which task of a batch it has written, so a
replay must give every task the same rows, whatever the options and the topic are by then.
Offsets without ``pieces`` were written before it existed, or close no batch.

Spark's own Kafka source keeps ``{"orders": {"0": 9}}``. That is read too, so that a query can move
from ``format("kafka")`` to this source with its checkpoint; it names no topic id and no start.
"""

import enum
from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

import msgspec

from ottla.protocol.types import TopicPartition

VERSION: Final = 1
LATEST: Final = -1
EARLIEST: Final = -2

Partition: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Offset: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Pieces: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Positions: TypeAlias = dict[TopicPartition, int]


class BadStreamOffset(ValueError):
    """What the checkpoint holds is no offset of this source."""


# -- where to begin, where to end --------------------------------------------


class Edge(enum.Enum):
    """An end of the log itself."""

    EARLIEST = "earliest"
    LATEST = "latest"


class AtOffsets(msgspec.Struct, frozen=True):
    """An offset for each partition; -1 is its end and -2 its beginning."""

    offsets: Positions


class AtTimestamps(msgspec.Struct, frozen=True):
    """The first record of this time or later, in ms since 1970, for each partition."""

    times: Positions
    latest_if_none: bool


class AtTimestamp(msgspec.Struct, frozen=True):
    """The first record of this time or later, in ms since 1970, of every partition."""

    time: int
    latest_if_none: bool


class Ago(msgspec.Struct, frozen=True):
    """The first record of the last so many ms; where there is none, the end."""

    ms: int


Boundary: TypeAlias = Edge | AtOffsets | AtTimestamps | AtTimestamp | Ago


# -- how far a stream has come -----------------------------------------------


class TopicOffsets(msgspec.Struct, frozen=True):
    """How far one topic is read.

    ``id`` is empty, and ``start`` and ``pieces`` are None, where they are not known.
    """

    id: str
    end: dict[Partition, Offset]
    start: dict[Partition, Offset] | None = None
    pieces: dict[Partition, Pieces] | None = None


class StreamOffset(msgspec.Struct, frozen=True):
    """How far a stream is read: all its partitions, with or without new rows."""

    topics: dict[str, TopicOffsets]

    @property
    def ends(self) -> Positions:
        """Where the next batch begins."""
        return _flat({name: topic.end for name, topic in self.topics.items()})

    @property
    def starts(self) -> Positions | None:
        """Where the batch that ends here begins; None where it was not kept."""
        found: dict[str, dict[int, int]] = {}
        for name, topic in self.topics.items():
            if topic.start is None:
                return None
            found[name] = topic.start
        return _flat(found)

    @property
    def pieces(self) -> dict[TopicPartition, int] | None:
        """How many Spark partitions read each range of the batch; None where it was not kept."""
        found: dict[str, dict[int, int]] = {}
        for name, topic in self.topics.items():
            if topic.pieces is None:
                return None
            found[name] = {number: topic.pieces.get(number, 1) for number in topic.end}
        return _flat(found)

    @property
    def ids(self) -> dict[str, str]:
        """The id of each topic, empty where it was not kept."""
        return {name: topic.id for name, topic in self.topics.items()}


def stream_offset(
    starts: Positions,
    ends: Positions,
    ids: Mapping[str, str],
    pieces: Mapping[TopicPartition, int] | None = None,
) -> StreamOffset:
    """Put positions together; both have the same partitions. ``pieces`` None: closes no batch."""
    assert starts.keys() == ends.keys(), "a batch begins and ends with the same partitions"
    first, last = _nested(starts), _nested(ends)
    cut = None
    if pieces is not None:
        cut = _nested({each: count for each, count in pieces.items() if count > 1})
    return StreamOffset(
        {
            name: TopicOffsets(
                ids[name], last[name], first[name], None if cut is None else cut.get(name, {})
            )
            for name in sorted(last)
        }
    )


def to_json(offset: StreamOffset, group: str | None = None) -> dict[str, object]:
    """Return what Spark shall keep: plain dicts, sorted, so that equal offsets are equal text."""
    topics: dict[str, dict[str, object]] = {}
    for name, topic in sorted(offset.topics.items()):
        topics[name] = {
            "id": topic.id,
            "start": _texts(topic.start or topic.end),
            "end": _texts(topic.end),
        }
        if topic.pieces is not None:
            topics[name]["pieces"] = _texts(topic.pieces)
    head: dict[str, object] = {"version": VERSION}
    if group is not None:
        head["group"] = group
    return {**head, "topics": topics}


def from_json(kept: object) -> StreamOffset:
    """Read what `to_json` wrote, or what Spark's Kafka source did.

    Raises:
        BadStreamOffset: it is neither; the message says what is wrong and where.
    """
    if not isinstance(kept, dict):
        raise BadStreamOffset(f"an offset is a JSON object, not {type(kept).__name__}")
    try:
        if not isinstance(kept.get("version"), int):  # a topic may be called version
            foreign = msgspec.convert(kept, dict[str, dict[Partition, Offset]], str_keys=True)
            return StreamOffset({name: TopicOffsets("", end) for name, end in foreign.items()})
        if kept["version"] != VERSION:
            raise BadStreamOffset(f"offset of version {kept['version']!r}; this reads {VERSION}")
        offset = msgspec.convert(
            {"topics": kept.get("topics")}, StreamOffset, strict=True, str_keys=True
        )
    except msgspec.ValidationError as error:
        raise BadStreamOffset(f"the checkpoint's offset is not one of this source: {error}") from (
            error
        )
    for name, topic in offset.topics.items():
        if topic.start is not None and topic.start.keys() != topic.end.keys():
            raise BadStreamOffset(f"the checkpoint's offset of {name} begins and ends differently")
    return offset


def _flat(nested: Mapping[str, Mapping[int, int]]) -> Positions:
    return {
        TopicPartition(name, number): offset
        for name, theirs in nested.items()
        for number, offset in theirs.items()
    }


def _nested(positions: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for (name, number), offset in sorted(positions.items()):
        found.setdefault(name, {})[number] = offset
    return found


def _texts(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(number): offset for number, offset in sorted(offsets.items())}
