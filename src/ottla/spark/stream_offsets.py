"""Stream offsets as Spark stores them, and the boundaries of reads. Pure.

One offset of a stream, as stored in the checkpoint and in a query's progress:

    {"version": 1, "group": "billing",
     "topics": {"orders": {"id": "tQ3...", "start": {"0": 5, "1": 0}, "end": {"0": 9, "1": 3},
                           "pieces": {"0": 2}}}}

``end`` is the end of the batch that this offset closes, ``start`` the start of the same batch, and
``id`` the id of the topic that was read. Spark requests a new initial offset when it replays its
first batch: if the start were not stored, ``startingOffsets=latest`` would lose or repeat rows.

``pieces`` is the number of Spark partitions into which each range is cut; a partition that is not
listed has one piece. An exactly-once sink records which tasks of a batch it has written, so a
replay must give every task the same rows, even if the options or the topic have changed.
Offsets without ``pieces`` are older, or do not close a batch. With ``"joined": true`` beside
``topics``, one Spark partition has all ranges of the batch.

Spark's own Kafka source stores ``{"orders": {"0": 9}}``. This is accepted too, so that a query can
move from ``format("kafka")`` to this source with its checkpoint; it has no topic id and no start.
"""

import enum
from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

import msgspec

from ottla.protocol.types import TopicPartition

VERSION: Final = 1
LATEST: Final = -1
EARLIEST: Final = -2
EARLIEST_LOCAL: Final = -4

Partition: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Offset: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Pieces: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Positions: TypeAlias = dict[TopicPartition, int]


class BadStreamOffset(ValueError):
    """The checkpoint holds something that is not an offset of this source."""


# -- where to begin, where to end --------------------------------------------


class Edge(enum.Enum):
    """The start or the end of the log."""

    EARLIEST = "earliest"
    LATEST = "latest"


class AtOffsets(msgspec.Struct, frozen=True):
    """An offset per partition; -1 is the log end and -2 the log start."""

    offsets: Positions


class AtTimestamps(msgspec.Struct, frozen=True):
    """The first record at or after a timestamp (ms since 1970) per partition."""

    times: Positions
    latest_if_none: bool


class AtTimestamp(msgspec.Struct, frozen=True):
    """The first record of every partition at or after one timestamp (ms since 1970)."""

    time: int
    latest_if_none: bool


class Ago(msgspec.Struct, frozen=True):
    """The first record of the last ``ms`` milliseconds; the log end if there is none."""

    ms: int


Boundary: TypeAlias = Edge | AtOffsets | AtTimestamps | AtTimestamp | Ago


# -- the position of a stream -----------------------------------------------


class TopicOffsets(msgspec.Struct, frozen=True):
    """The position in one topic.

    ``id`` is empty, and ``start`` and ``pieces`` are None, if unknown.
    """

    id: str
    end: dict[Partition, Offset]
    start: dict[Partition, Offset] | None = None
    pieces: dict[Partition, Pieces] | None = None


class StreamOffset(msgspec.Struct, frozen=True):
    """The position of a stream in all its partitions, with or without new rows."""

    topics: dict[str, TopicOffsets]
    is_joined: bool = False

    @property
    def ends(self) -> Positions:
        """The start of the next batch."""
        return _flat({name: topic.end for name, topic in self.topics.items()})

    @property
    def starts(self) -> Positions | None:
        """The start of the batch that ends here; None if it was not stored."""
        found: dict[str, dict[int, int]] = {}
        for name, topic in self.topics.items():
            if topic.start is None:
                return None
            found[name] = topic.start
        return _flat(found)

    @property
    def pieces(self) -> dict[TopicPartition, int] | None:
        """The number of Spark partitions per range of the batch; None if not stored."""
        found: dict[str, dict[int, int]] = {}
        for name, topic in self.topics.items():
            if topic.pieces is None:
                return None
            found[name] = {number: topic.pieces.get(number, 1) for number in topic.end}
        return _flat(found)

    @property
    def ids(self) -> dict[str, str]:
        """The id of each topic, empty if not stored."""
        return {name: topic.id for name, topic in self.topics.items()}


def stream_offset(
    starts: Positions,
    ends: Positions,
    ids: Mapping[str, str],
    pieces: Mapping[TopicPartition, int] | None = None,
    *,
    is_joined: bool = False,
) -> StreamOffset:
    """Combine positions of the same partitions. ``pieces`` None: the offset closes no batch."""
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
        },
        is_joined,
    )


def to_json(offset: StreamOffset, group: str | None = None) -> dict[str, object]:
    """Return the form that Spark stores: sorted dicts, so that equal offsets are equal text."""
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
    if offset.is_joined:
        head["joined"] = True
    return {**head, "topics": topics}


def from_json(kept: object) -> StreamOffset:
    """Read the form of `to_json`, or that of Spark's Kafka source.

    Raises:
        BadStreamOffset: it is neither; the message says what is wrong.
    """
    if not isinstance(kept, dict):
        raise BadStreamOffset(f"an offset is a JSON object, not {type(kept).__name__}")
    try:
        if not isinstance(kept.get("version"), int):  # a topic may be named "version"
            foreign = msgspec.convert(kept, dict[str, dict[Partition, Offset]], str_keys=True)
            return StreamOffset({name: TopicOffsets("", end) for name, end in foreign.items()})
        if kept["version"] != VERSION:
            raise BadStreamOffset(f"offset of version {kept['version']!r}; this reads {VERSION}")
        offset = msgspec.convert(
            {"topics": kept.get("topics"), "is_joined": kept.get("joined", False)},
            StreamOffset,
            strict=True,
            str_keys=True,
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
