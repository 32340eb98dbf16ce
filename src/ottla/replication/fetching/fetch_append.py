"""Append the records of a Fetch response while the rest of it is still arriving.

A follower that is far behind fetches megabytes. It would be idle while they arrive, and the leader
while they are written; so complete batches are appended as soon as they are received. They are the
same batches in the same order, with the same checks, as if they had come in separate responses: if
the response ends early, the log ends with a complete batch, and the next fetch starts there. A
fetch never starts after what is appended, because the leader counts its offset as progress.
"""

from collections.abc import Mapping, MutableMapping

from ottla.protocol.faults import CorruptBatch, Fault, StorageFailed, UnsupportedMagic
from ottla.protocol.messages.fetch import FetchPartition, FetchResponse, PartitionData
from ottla.protocol.schema import Message
from ottla.protocol.types import Buffer, Offset
from ottla.replication.fetching.fetch_session import Key
from ottla.replication.fetching.follower import Follower
from ottla.replication.fetching.partial_fetch import PartialFetchResponse
from ottla.replication.host import Host


class FetchAppender:
    """`Reader` of the response to one fetch. Appends records; the fetcher handles the rest.

    ``followers`` and ``requested`` are the partitions of the fetch; ``stale`` receives the key of
    every log that has grown. `rejected` are the partitions whose records were rejected.
    """

    def __init__(
        self,
        host: Host,
        followers: Mapping[Key, Follower],
        requested: Mapping[Key, FetchPartition],
        stale: MutableMapping[Key, None],
    ) -> None:
        self.rejected: dict[Key, Fault] = {}
        self.got: dict[Key, int] = {}
        self._has_answers = False  # rows with an error or a diverging epoch
        self._host = host
        self._followers = followers
        self._requested = requested
        self._stale = stale
        self._arriving: PartialFetchResponse | None = None
        self._reached: dict[Key, Offset] = {}  # log ends after what was appended early
        self._early: dict[Key, int] = {}  # bytes appended early
        self._left: set[Key] = set()  # keys of which nothing more is appended early

    @property
    def is_plain(self) -> bool:
        """Whether the response had nothing but records, all of them appended or outdated."""
        return not self._has_answers and not self.rejected

    def arriving(self, version: int, body: memoryview) -> None:
        """Append the complete batches received so far."""
        if self._arriving is None:
            self._arriving = PartialFetchResponse(version)
        while (part := self._arriving.next(body)) is not None:
            if part.key in self._left:
                continue
            if self._append(part.key, part.batches):
                self._early[part.key] = self._early.get(part.key, 0) + len(part.batches)
            else:
                # For good: the next batches would leave a gap, which a log accepts silently.
                self._left.add(part.key)

    def arrived(self, response: Message) -> None:
        """Append the rest, and update the high watermark and log start from the leader's.

        Clears the records of the response: their buffer is reused.
        """
        assert isinstance(response, FetchResponse)
        for topic in response.responses:
            for row in topic.partitions:
                self._process((topic.topic_id, row.partition_index), row)
                row.records = None

    def _process(self, key: Key, row: PartitionData) -> None:
        if row.error_code or row.diverging_epoch.end_offset >= 0:
            self._has_answers = True
            return
        records = memoryview(row.records or b"")
        self.got[key] = len(records)
        rest = records[self._early.pop(key, 0) :]
        if key in self.rejected or not self._append(key, rest):
            return
        follower = self._followers[key]
        try:
            follower.learn(Offset(row.high_watermark), Offset(row.log_start_offset))
        except StorageFailed as fault:
            self.rejected[key] = fault

    def _append(self, key: Key, batches: Buffer) -> bool:
        """Append batches; False when the partition has moved on or rejected them."""
        follower = self._followers.get(key)
        if follower is None or not follower.is_current:
            return False
        log = follower.partition.log
        expected = self._reached.get(key, self._requested[key].fetch_offset)
        if log.log_end_offset != expected:
            return False
        if not batches:
            return True
        try:
            taken = follower.append(batches, self._host.clock.now())
        except Fault as fault:
            self._host.damaged_fetches += isinstance(fault, (CorruptBatch, UnsupportedMagic))
            self.rejected[key] = fault
            return False
        self._stale[key] = None
        self._reached[key] = log.log_end_offset
        self._host.throttles.fetched(follower.partition, taken)
        return True
