"""The rounds of one fetcher: what the next request asks for, and what a response changes.

Synchronous; `fetcher_loop.py` connects, waits and handles what the leader rejects.

    begin    the next request: every followed partition, from its log's end
    arrived  append the records of the response
    next_request   finish this round and begin the next one, in the callback that received the
             response. None if the response has an error, a diverging epoch or a batch that the log
             rejected: then the fetcher's task processes it (`unsettled`).

A produced record is replicated only when the next request of the follower arrives. So nothing
stands between the append and that request: no task is woken, and no iteration of the event loop
passes.

Of thousands of partitions most are idle. Only those that a response named or that changed here
(`_stale`) are updated; the session keeps the others as they were, and no request names them.
"""

from collections.abc import Iterable

import msgspec

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import NO_EPOCH, Millis, Uuid
from ottla.replication.fetching.fetch_append import FetchAppender
from ottla.replication.fetching.fetch_session import FetchSession, Key, NextFetch
from ottla.replication.fetching.follower import Follower
from ottla.replication.fetching.follower_rules import FetchRound, decide_bytes
from ottla.replication.host import Host
from ottla.replication.leading.waiters import Unsubscribe
from ottla.replication.partition import Partition


class FetchSettings(msgspec.Struct, frozen=True):
    """Kafka's ``replica.fetch.*`` and ``replica.socket.timeout.ms``; bytes and milliseconds."""

    bytes_max: int = 1_048_576
    response_bytes_max: int = 10_485_760
    min_bytes: int = 1
    wait_ms_max: int = 500
    backoff_ms: int = 1000
    timeout_ms: int = 30_000
    fetchers_per_leader: int = 1


class FetchRounds:
    """The followed partitions of one leader, and the `Reader` of its responses.

    ``unsettled`` is the response of this round while there is something left to do about it.
    """

    def __init__(self, host: Host, settings: FetchSettings) -> None:
        self.session = FetchSession()
        self.unsettled: FetchResponse | None = None
        self._host = host
        self._settings = settings
        self._followed: dict[Key, Follower] = {}
        # What the last request asked for, and the followers it was for.
        self._requested: dict[Key, FetchPartition] = {}
        self._requesting: dict[Key, Follower] = {}
        # What must be updated before the next request; a dict, since its order reaches the wire.
        self._stale: dict[Key, None] = {}
        self._unsubscribes: dict[Key, Unsubscribe] = {}
        self._appender = FetchAppender(host, self._requesting, self._requested, self._stale)
        self._began = Millis(0)
        self._taken_ms = 0

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, partition: Partition) -> None:
        """Follow a partition in its present leader epoch."""
        key = (partition.topic_id, partition.index)
        self._stop_listening(key)
        self._followed[key] = Follower(self._host, partition)
        self._stale[key] = None
        self._unsubscribes[key] = partition.on_appended(lambda: self._stale.setdefault(key))

    def remove(self, partition: Partition) -> None:
        """Stop following a partition."""
        key = (partition.topic_id, partition.index)
        self._stop_listening(key)
        self._followed.pop(key, None)
        self._stale[key] = None

    def close(self) -> None:
        """End the subscriptions to all partitions."""
        for key in list(self._unsubscribes):
            self._stop_listening(key)

    def _stop_listening(self, key: Key) -> None:
        unsubscribe = self._unsubscribes.pop(key, None)
        if unsubscribe is not None:
            unsubscribe()

    # -- requests ----------------------------------------------------------------

    def update(self) -> list[Key] | None:
        """Update what is to be requested; return the keys that may have changed, for `begin`.

        None if no partition may be fetched now. One that may not is checked again each time.
        """
        throttles = self._host.throttles
        if throttles.follower.is_limited:
            # Whether a partition is throttled, and how long, is known only by checking it.
            self._stale.update(dict.fromkeys(self._followed))
        touched, now = list(self._stale), self._host.clock.monotonic()
        for key in touched:
            follower = self._followed.get(key)
            if follower is None:
                del self._stale[key]
            elif (
                follower.delayed_until <= now
                and follower.is_current
                and not throttles.holds_back(follower.partition)
            ):
                del self._stale[key]
                self._requested[key] = self._fetch_partition(follower)
                self._requesting[key] = follower
                continue
            self._requested.pop(key, None)
            self._requesting.pop(key, None)
        return touched if self._requested else None

    def begin(self, touched: list[Key]) -> FetchRequest:
        """Begin a round; return its request."""
        self.unsettled = None
        self._appender = FetchAppender(self._host, self._requesting, self._requested, self._stale)
        request = self._request(self.session.next(self._requested, touched))
        self._began = self._host.clock.monotonic()
        return request

    def _fetch_partition(self, follower: Follower) -> FetchPartition:
        local = follower.partition.log
        latest = local.epochs.latest_epoch
        return FetchPartition(
            partition=follower.partition.index,
            current_leader_epoch=follower.epoch,
            fetch_offset=local.log_end_offset,
            last_fetched_epoch=NO_EPOCH if latest is None else latest,
            log_start_offset=local.log_start_offset,
            partition_max_bytes=max(follower.bytes_wanted, self._settings.bytes_max),
        )

    def _request(self, fetch: NextFetch) -> FetchRequest:
        settings, node_id = self._settings, self._host.node_id
        return FetchRequest(
            replica_id=node_id,
            replica_state=ReplicaState(node_id, self._host.broker_epoch),
            max_wait_ms=settings.wait_ms_max,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_bytes_max,
            session_id=fetch.session_id,
            session_epoch=fetch.session_epoch,
            topics=[
                FetchTopic(topic_id=topic, partitions=[fetch.partitions[topic, i] for i in indexes])
                for topic, indexes in _by_topic(fetch.partitions)
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic, partitions=indexes)
                for topic, indexes in _by_topic(fetch.forgotten)
            ],
        )

    # -- responses ---------------------------------------------------------------

    def arriving(self, version: int, body: memoryview) -> None:
        """Append the complete batches of a partial response."""
        self._appender.arriving(version, body)

    def arrived(self, response: Message) -> None:
        """Append what a response has, and note how long it took."""
        assert isinstance(response, FetchResponse)
        self.unsettled = response
        self._appender.arrived(response)
        self._taken_ms = self._host.clock.monotonic() - self._began

    def next_request(self) -> FetchRequest | None:
        """Finish the round and begin the next one; None if that is left to the fetcher's task."""
        response = self.unsettled
        if response is None or response.error_code or not self._appender.is_plain:
            return None
        self.answered(response)
        for topic in response.responses:
            for data in topic.partitions:
                self.settle((topic.topic_id, data.partition_index), data)
        self.unsettled = None
        touched = self.update()
        return None if touched is None else self.begin(touched)

    def answered(self, response: FetchResponse) -> ErrorCode:
        """Process the head of the response; return its error."""
        error = ErrorCode(response.error_code)
        self.session.answered(error, response.session_id)
        return error

    def settle(self, key: Key, data: PartitionData) -> Follower | None:
        """Process a row after its records; return the follower if more than records is in it.

        That is an error, a diverging epoch or a fault of `rejection`.
        """
        follower = self._requesting.get(key)
        if follower is None:
            return None
        self._stale[key] = None
        if not follower.is_current:
            return None
        asked, appender = self._requested[key], self._appender
        follower.bytes_wanted = decide_bytes(
            FetchRound(asked.partition_max_bytes, appender.got.get(key, 0), self._taken_ms),
            self._settings.bytes_max,
            self._settings.response_bytes_max,
        )
        if key in appender.rejected:
            return follower
        is_answered = data.error_code or data.diverging_epoch.end_offset >= 0
        has_grown = follower.partition.log.log_end_offset != asked.fetch_offset
        return follower if is_answered and not has_grown else None

    def rejection(self, key: Key) -> Fault | None:
        """Return the fault of the records of this round, if they were rejected."""
        return self._appender.rejected.get(key)


def _by_topic(keys: Iterable[Key]) -> list[tuple[Uuid, list[int]]]:
    found: dict[Uuid, list[int]] = {}
    for topic_id, index in keys:
        found.setdefault(topic_id, []).append(index)
    return list(found.items())
