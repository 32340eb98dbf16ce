"""Metadata of all topics, from rows that were encoded before.

Tools and consumers of a pattern ask for all topics again and again, and of thousands of topics
hardly any has changed. The row of a topic follows from the topic, the brokers, the listener and the
version of the request. The first two are immutable values of the image, so a row is good for as
long as they are the same objects; nothing has to be removed when one changes.

Rows are made and encoded by the code of all other requests (`ottla.api.cluster.metadata.TopicView`
and the codec). A reply is the general one without topics, with the rows put in:

    fields up to cluster id and controller | number of topics | rows | fields after the topics
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import Final

import msgspec
from immutables import Map

from ottla.api.surface.replies import Chunk
from ottla.metadata.registrations import BrokerRegistration
from ottla.metadata.topics import Topic, Topics
from ottla.protocol.codec import encode
from ottla.protocol.codec.primitives import uvarint
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from ottla.protocol.types import Uuid

VIEWS_MAX: Final = 4
"""Pairs of a listener and a version whose rows are kept: clients of one kind use one version."""
SURPLUS_MAX: Final = 1000
"""Rows of deleted topics that are kept, next to as many rows as there are topics."""

_PARTITION_BYTES: Final = 64
_FLEXIBLE_SINCE: Final = 9
_ERROR_SINCE: Final = 13
_OPERATIONS_OF_THE_CLUSTER: Final = range(8, 11)

Brokers = Map[int, BrokerRegistration]


class TopicRows:
    """The rows for one listener and version, by topic; all of one state of the brokers.

    A request that is answered in steps keeps its own state of the brokers, and these rows, although
    a later one may have replaced them in the memory.
    """

    __slots__ = ("_brokers", "_rows", "_version")

    def __init__(self, version: int, brokers: Brokers) -> None:
        self._version = version
        self._brokers = brokers
        self._rows: dict[Uuid, tuple[Topic, bytes]] = {}

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    def is_good(self, brokers: Brokers, topics: Topics) -> bool:
        """Say whether the brokers are the same, and most topics are not gone."""
        return brokers is self._brokers and len(self._rows) <= 2 * len(topics.by_id) + SURPLUS_MAX

    def row(self, topic: Topic, describe: Callable[[Topic], MetadataResponseTopic]) -> bytes:
        """Return the row of a topic, encoded."""
        known = self._rows.get(topic.id)
        if known is not None and known[0] is topic:
            return known[1]
        row = encode_row(describe(topic), self._version)
        self._rows[topic.id] = (topic, row)
        return row


class RowMemory(msgspec.Struct):
    """The rows of the views that were last used, and the names of all topics in order."""

    _views: OrderedDict[tuple[str, int], TopicRows] = msgspec.field(default_factory=OrderedDict)
    _ids: Map[str, Uuid] | None = None
    _names: list[str] = msgspec.field(default_factory=list)

    def view(self, listener: str, version: int, brokers: Brokers, topics: Topics) -> TopicRows:
        """Return the rows for a listener and version that are still good."""
        key = (listener, version)
        found = self._views.pop(key, None)
        if found is None or not found.is_good(brokers, topics):
            found = TopicRows(version, brokers)
        self._views[key] = found
        if len(self._views) > VIEWS_MAX:
            self._views.popitem(last=False)
        return found

    def views(self) -> list[TopicRows]:
        """Return the views whose rows are kept, the one that was used last at the end."""
        return list(self._views.values())

    def names(self, topics: Topics) -> list[str]:
        """Return the names of all topics, ascending."""
        if self._ids is not topics.ids:
            self._names, self._ids = topics.names(), topics.ids
        return self._names


def cost_of(row: bytes) -> int:
    """Return how much of a step a row takes, by its partitions, as if it had to be made."""
    return 1 + len(row) // _PARTITION_BYTES


def encode_row(row: MetadataResponseTopic, version: int) -> bytes:
    """Return a row as it stands in a reply."""
    before, after = _around_no_topics(version)
    whole = encode(MetadataResponse(topics=[row]), version)
    return bytes(whole[len(before) + _count_bytes(version) : len(whole) - len(after)])


def pack_metadata(reply: MetadataResponse, rows: list[bytes], version: int) -> list[Chunk]:
    """Return the body of a reply with ``rows`` as its topics; ``reply`` must have none."""
    assert not reply.topics, "rows are passed encoded"
    before, after = _around_topics(reply, version)
    is_flexible = version >= _FLEXIBLE_SINCE
    count = uvarint(len(rows) + 1) if is_flexible else len(rows).to_bytes(4, "big")
    return [before + count, b"".join(rows), after]


def _around_topics(reply: MetadataResponse, version: int) -> tuple[bytes, bytes]:
    """Return what stands before the number of topics, and after the last one."""
    whole = bytes(encode(reply, version))
    end = len(whole) - _bytes_after_topics(version)
    return whole[: end - _count_bytes(version)], whole[end:]


@cache
def _around_no_topics(version: int) -> tuple[bytes, bytes]:
    """Return what stands around the topics of an empty reply, once for all rows."""
    return _around_topics(MetadataResponse(), version)


def _count_bytes(version: int) -> int:
    """Return the size of the number of topics, while it is 0 or 1."""
    return 1 if version >= _FLEXIBLE_SINCE else 4


def _bytes_after_topics(version: int) -> int:
    operations = 4 if version in _OPERATIONS_OF_THE_CLUSTER else 0
    error = 2 if version >= _ERROR_SINCE else 0
    tags = 1 if version >= _FLEXIBLE_SINCE else 0
    return operations + error + tags
