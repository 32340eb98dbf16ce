"""Looks for dead letters that were written before, by a leader that could not confirm them.

A leader writes dead letters and then stores that it did. If it fails between the two, or does not
learn the result of its write, the next attempt finds the letters at the end of the topic by the
coordinates in their headers, and does not write them again. It reads the newest `LETTERS_MAX`
letters: more than all share partitions of one broker have unconfirmed at a time. Letters that are
appended but not replicated yet count, too: the search fails until they are readable.
"""

from typing import Final

from ottla.coordinators.broker_links import BrokerLinks
from ottla.metadata.topics import Topic
from ottla.protocol.faults import NotLeader
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.records.batch import read_header
from ottla.protocol.records.reader import read_records
from ottla.protocol.types import Buffer, Offset
from ottla.sharing.dead_letters import origin_offset
from ottla.sharing.ports import Origin

LETTERS_MAX: Final = 20_000
_PIECE_BYTES: Final = 1 << 20
_CONSUMER: Final = -1
_DEBUGGER: Final = -2
_LATEST: Final = -1


async def find_written(
    links: BrokerLinks, place: tuple[Topic, int, int], origin: Origin
) -> set[Offset]:
    """Return the offsets of an origin that have a letter among the newest of a partition.

    ``place`` is a topic, the index of a partition and its leader. Raises `NotLeader`, also while
    the high watermark is below the end of the log, and what `BrokerLinks.ask` raises.
    """
    topic, index, leader = place
    end = await _log_end(links, place)
    offset = max(0, end - LETTERS_MAX)
    found: set[Offset] = set()
    while offset < end:
        rows = [FetchPartition(index, fetch_offset=offset, partition_max_bytes=_PIECE_BYTES)]
        request = FetchRequest(replica_id=_CONSUMER, max_wait_ms=0, min_bytes=0)
        request.topics = [FetchTopic(topic=topic.name, topic_id=topic.id, partitions=rows)]
        request.max_bytes = _PIECE_BYTES
        reply = await links.ask(leader, request)
        assert isinstance(reply, FetchResponse)
        if reply.error_code or not reply.responses:
            raise NotLeader(f"{topic.name}-{index} cannot be read: {reply.error_code}")
        part = reply.responses[0].partitions[0]
        if part.log_start_offset > offset:
            offset = part.log_start_offset
            continue
        if part.error_code:
            raise NotLeader(f"{topic.name}-{index} cannot be read: {part.error_code}")
        following = _collect(part.records or b"", origin, found)
        if following <= offset:
            if part.high_watermark < end:
                raise NotLeader(f"{topic.name}-{index} is readable up to {part.high_watermark}")
            break  # compaction removed the rest
        offset = following
    return found


async def _log_end(links: BrokerLinks, place: tuple[Topic, int, int]) -> int:
    """Return the end of the log; a consumer would get the high watermark."""
    topic, index, leader = place
    row = ListOffsetsTopic(topic.name, [ListOffsetsPartition(index, timestamp=_LATEST)])
    reply = await links.ask(leader, ListOffsetsRequest(_DEBUGGER, topics=[row]))
    assert isinstance(reply, ListOffsetsResponse)
    part = reply.topics[0].partitions[0]
    if part.error_code:
        raise NotLeader(f"{topic.name}-{index} has no end: {part.error_code}")
    return part.offset


def _collect(data: Buffer, origin: Origin, found: set[Offset]) -> int:
    """Add the offsets of an origin's letters in whole batches; return the offset after them."""
    position, following = 0, 0
    view = memoryview(data)
    while position + 61 <= len(view):
        header = read_header(view[position:])
        if position + header.size > len(view):
            break
        for letter in read_records(view, position):
            offset = origin_offset(letter, origin)
            if offset is not None:
                found.add(offset)
        position += header.size
        following = header.last_offset + 1
    return following
