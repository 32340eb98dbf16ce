"""What a leader's answer brings is appended while the rest of it still comes.

A follower that is far behind asks for megabytes. It would stand idle while they come and the
leader while they are written; so whole batches are appended as soon as they are there. They are
the same batches in the same order, with the same checks, as if they had come in answers of their
own: whatever ends the answer early, the log ends with a whole batch, and the next fetch asks from
there. No fetch ever asks from behind what is appended, for that is how a leader counts.
"""

from collections.abc import Mapping, MutableMapping

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import CorruptBatch, Fault, StorageFailed, UnsupportedMagic
from ottla.protocol.messages.fetch import FetchPartition, FetchResponse, PartitionData
from ottla.protocol.schema import Message
from ottla.protocol.types import Buffer, Offset
from ottla.replication.fetch_session import Key
from ottla.replication.follower import Follower
from ottla.replication.host import Host
from ottla.replication.partial_fetch import PartialFetchResponse


class FetchAppender:
    """`Reader` of the answer to one fetch. Records are appended here, all else is left to others.

    ``asked`` and ``wanted`` are whom the fetch was for and what it asked; ``stale`` is told of
    every log that has grown. `refused` are the partitions whose records were no good.
    """

    def __init__(
        self,
        host: Host,
        asked: Mapping[Key, Follower],
        wanted: Mapping[Key, FetchPartition],
        stale: MutableMapping[Key, None],
    ) -> None:
        self.refused: dict[Key, Fault] = {}
        self.got: dict[Key, int] = {}
        self._host = host
        self._asked = asked
        self._wanted = wanted
        self._stale = stale
        self._arriving: PartialFetchResponse | None = None
        self._reached: dict[Key, Offset] = {}  # where logs end by what was appended early
        self._early: dict[Key, int] = {}  # bytes of that
        self._left: set[Key] = set()  # of which nothing more is appended early

    def arriving(self, version: int, body: memoryview) -> None:
        """Append what is there in whole batches."""
        if self._arriving is None:
            self._arriving = PartialFetchResponse(version)
        while (part := self._arriving.next(body)) is not None:
            if part.key in self._left:
                continue
            if self._append(part.key, part.batches):
                self._early[part.key] = self._early.get(part.key, 0) + len(part.batches)
            else:
                # For good: what comes next would leave a gap, and gaps are nothing strange.
                self._left.add(part.key)

    def arrived(self, response: Message) -> None:
        """Append the rest, and learn of the leader's high watermark and log start.

        Records are gone from the response then: their bytes are somebody else's soon.
        """
        assert isinstance(response, FetchResponse)
        for topic in response.responses:
            for row in topic.partitions:
                self._take_in((topic.topic_id, row.partition_index), row)
                row.records = None

    def _take_in(self, key: Key, row: PartitionData) -> None:
        if row.error_code != ErrorCode.NONE or row.diverging_epoch.end_offset >= 0:
            return
        records = memoryview(row.records or b"")
        self.got[key] = len(records)
        rest = records[self._early.pop(key, 0) :]
        if key in self.refused or not self._append(key, rest):
            return
        follower = self._asked[key]
        try:
            follower.learn(Offset(row.high_watermark), Offset(row.log_start_offset))
        except StorageFailed as fault:
            self.refused[key] = fault

    def _append(self, key: Key, batches: Buffer) -> bool:
        """Append; False when the partition has moved on since, or would not take them."""
        follower = self._asked.get(key)
        if follower is None or not follower.is_current:
            return False
        log = follower.partition.log
        expected = self._reached.get(key, self._wanted[key].fetch_offset)
        if log.log_end_offset != expected:
            return False
        if not batches:
            return True
        try:
            taken = follower.append(batches, self._host.clock.now())
        except Fault as fault:
            self._host.damaged_fetches += isinstance(fault, (CorruptBatch, UnsupportedMagic))
            self.refused[key] = fault
            return False
        self._stale[key] = None
        self._reached[key] = log.log_end_offset
        self._host.throttles.fetched(follower.partition, taken)
        return True
