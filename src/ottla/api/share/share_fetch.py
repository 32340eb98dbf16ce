"""ShareFetch and ShareAcknowledge, as a share consumer sends them to the leaders of partitions.

    session -> acknowledge what the request brings -> acquire, or wait -> reply

The session is updated before the handler returns, so that requests of one connection keep their
order; the rest waits until the state is durable.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from ottla.api.groups.group_access import ALLOW_ALL, GroupAccess
from ottla.api.partitions.current_leaders import NodeEndpoint, current_leader, endpoint_of
from ottla.api.surface.replies import Reply, Work
from ottla.api.surface.routes import Caller
from ottla.coordinators.groups.share.heartbeat import MEMBER_ID_MAX
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import share_acknowledge as acknowledge_messages
from ottla.protocol.messages import share_fetch as fetch_messages
from ottla.protocol.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from ottla.protocol.messages.share_fetch import (
    AcquiredRecords,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.protocol.types import Offset, TopicIdPartition, Uuid
from ottla.runtime.ports import Address, Clock
from ottla.sharing.acquisition import Ack, AcquireMode, check_acks
from ottla.sharing.ports import ShareKey
from ottla.sharing.service import Fetched, FetchLimits, SharePartitions
from ottla.sharing.sessions import (
    FINAL,
    INITIAL,
    Opened,
    SessionKey,
    SessionRequest,
    Sessions,
    named,
)

RENEW_SINCE: Final = 2
_ACQUIRE_MODES: Final = frozenset(AcquireMode)
_TELL_LEADER: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

Acks: TypeAlias = dict[TopicIdPartition, list[Ack]]
Codes: TypeAlias = dict[TopicIdPartition, ErrorCode]


class ShareSources(msgspec.Struct, frozen=True):
    """The share partitions, sessions and authorization; ``image`` returns the newest image."""

    partitions: SharePartitions
    sessions: Sessions
    clock: Clock
    image: Callable[[], Image]
    bytes_max: int
    access: GroupAccess = ALLOW_ALL


class ShareHandlers(msgspec.Struct, frozen=True):
    """The handlers of a broker's listeners."""

    sources: ShareSources

    def on_connection_closed(self, listener: str, peer: Address) -> None:
        """End the sessions of a closed connection, and release the records acquired over it.

        Its member cannot acknowledge them any more; without this, others would wait for the locks
        to expire.
        """
        sources = self.sources
        for key in sources.sessions.begun_on(connection_of(listener, peer)):
            sources.sessions.end(key)
            is_last = not sources.sessions.count_of(key.group_id)
            sources.partitions.let_go(key.group_id, key.member_id, is_last=is_last)

    # -- ShareFetch --------------------------------------------------------------

    def on_fetch(self, caller: Caller, request: ShareFetchRequest, version: int) -> Reply:
        """Go through the session now, the rest beside later requests."""
        key = self._key(caller, request.group_id, request.member_id)
        if isinstance(key, ErrorCode):
            return ShareFetchResponse(error_code=key)
        is_renewal_with_fetch = request.is_renew_ack and (request.max_bytes or request.max_records)
        if is_renewal_with_fetch or request.share_acquire_mode not in _ACQUIRE_MODES:
            return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        acks = _acks_of(request.topics)
        asked = SessionRequest(
            key,
            request.share_session_epoch,
            named((t.topic_id, [p.partition_index for p in t.partitions]) for t in request.topics),
            named((t.topic_id, t.partitions) for t in request.forgotten_topics_data),
            bool(acks),
            connection_of(caller.listener, caller.peer),
        )
        opened = self.sources.sessions.fetch(asked, self.sources.clock.monotonic())
        if isinstance(opened, ErrorCode):
            return ShareFetchResponse(error_code=opened)
        share = _Share(self.sources, caller, key, version)
        return Work(self._fetch(share, request, opened, acks))

    async def _fetch(
        self, share: "_Share", request: ShareFetchRequest, opened: Opened, acks: Acks
    ) -> ShareFetchResponse:
        if request.share_session_epoch == INITIAL:
            await share.refresh()
        codes = await share.acknowledge(acks, is_renewal=request.is_renew_ack)
        fetched: list[Fetched] = []
        if opened.is_final:
            await share.end()
        elif not request.is_renew_ack:
            fetched = await share.fetch(request, opened)
        return share.fetch_reply(fetched, codes)

    # -- ShareAcknowledge ----------------------------------------------------------

    def on_acknowledge(
        self, caller: Caller, request: ShareAcknowledgeRequest, version: int
    ) -> Reply:
        """Go through the session now, the rest beside later requests."""
        key = self._key(caller, request.group_id, request.member_id)
        if isinstance(key, ErrorCode):
            return ShareAcknowledgeResponse(error_code=key)
        sources = self.sources
        epoch = request.share_session_epoch
        code = sources.sessions.acknowledge(key, epoch, sources.clock.monotonic())
        if code is not ErrorCode.NONE:
            return ShareAcknowledgeResponse(error_code=code)
        return Work(self._acknowledge(_Share(sources, caller, key, version), request))

    async def _acknowledge(
        self, share: "_Share", request: ShareAcknowledgeRequest
    ) -> ShareAcknowledgeResponse:
        codes = await share.acknowledge(_acks_of(request.topics), is_renewal=request.is_renew_ack)
        if request.share_session_epoch == FINAL:
            await share.end()
        return share.acknowledge_reply(codes)

    def _key(
        self, caller: Caller, group_id: str | None, member_id: str | None
    ) -> SessionKey | ErrorCode:
        if group_id is None:
            return ErrorCode.INVALID_REQUEST
        if not self.sources.access.read_group(caller, group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        if not group_id or not member_id or len(member_id) > MEMBER_ID_MAX:
            return ErrorCode.INVALID_REQUEST
        return SessionKey(group_id, member_id)


class _Share(NamedTuple):
    """One request being served."""

    sources: ShareSources
    caller: Caller
    key: SessionKey
    version: int

    def _refusal(self, image: Image, place: TopicIdPartition) -> ErrorCode:
        """Return the error of a partition that is known without its share partition, or None."""
        topic = image.topics.by_id.get(place.topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not self.sources.access.read_topic(self.caller, topic.name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if place.partition not in topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    async def acknowledge(self, acks: Acks, *, is_renewal: bool) -> Codes:
        """Acknowledge in all partitions concurrently; return the error code of each."""
        codes = await asyncio.gather(
            *(self._acknowledge_one(place, acks[place], is_renewal) for place in acks)
        )
        return dict(zip(acks, codes, strict=True))

    async def _acknowledge_one(
        self, place: TopicIdPartition, acks: Sequence[Ack], is_renewal: bool
    ) -> ErrorCode:
        code = self._refusal(self.sources.image(), place)
        if code is ErrorCode.NONE:
            may_renew = is_renewal and self.version >= RENEW_SINCE
            code = check_acks(acks, may_renew=may_renew)
        if code is not ErrorCode.NONE:
            return code
        key = ShareKey(self.key.group_id, place)
        return await self.sources.partitions.acknowledge(key, self.key.member_id, acks)

    async def fetch(self, request: ShareFetchRequest, opened: Opened) -> list[Fetched]:
        """Acquire records in the partitions of the session, while it is open."""
        image, places = self.sources.image(), opened.places
        refusals = {place: self._refusal(image, place) for place in places}
        refused = [Fetched(p, code) for p, code in refusals.items() if code is not ErrorCode.NONE]
        terms = FetchLimits(
            self.key.group_id,
            self.key.member_id,
            request.max_records,
            min(request.max_bytes, self.sources.bytes_max),
            request.batch_size,
            AcquireMode(request.share_acquire_mode),
            0 if refused else max(0, request.max_wait_ms),
            lambda: self.sources.sessions.is_open(self.key, opened.session),
        )
        allowed = [place for place in places if refusals[place] is ErrorCode.NONE]
        found = [*refused, *await self.sources.partitions.fetch(terms, allowed)]
        return [*found, *_unlisted(opened, found)]

    async def end(self) -> None:
        """End the session, and release all records that the member has acquired here."""
        self.sources.sessions.end(self.key)
        await self.sources.partitions.release(self.key.group_id, self.key.member_id)

    async def refresh(self) -> None:
        """Reload the persisted state where the member is the only one of its group here."""
        if self.sources.sessions.count_of(self.key.group_id) == 1:
            await self.sources.partitions.refresh(self.key.group_id)

    # -- replies -------------------------------------------------------------------

    def fetch_reply(self, fetched: Iterable[Fetched], codes: Codes) -> ShareFetchResponse:
        """Return the acquired records and the results of acknowledgements, by topic."""
        image = self.sources.image()
        rows = {each.place: each for each in fetched}
        rows.update({place: Fetched(place) for place in codes if place not in rows})
        topics: dict[Uuid, list[fetch_messages.PartitionData]] = {}
        leaders: set[int] = set()
        for place, each in rows.items():
            ack_code = codes.get(place, ErrorCode.NONE)
            row = fetch_messages.PartitionData(
                partition_index=place.partition,
                error_code=each.code,
                acknowledge_error_code=ack_code,
                records=each.records,
                acquired_records=[AcquiredRecords(*got) for got in each.acquired],
            )
            if each.code in _TELL_LEADER or ack_code in _TELL_LEADER:
                row.current_leader = fetch_messages.LeaderIdAndEpoch(*_leader(image, place))
                leaders.add(row.current_leader.leader_id)
            topics.setdefault(place.topic_id, []).append(row)
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=self.sources.partitions.lock_ms(self.key.group_id),
            responses=[ShareFetchableTopicResponse(*each) for each in topics.items()],
            node_endpoints=[
                fetch_messages.NodeEndpoint(*each) for each in self._endpoints(image, leaders)
            ],
        )

    def acknowledge_reply(self, codes: Codes) -> ShareAcknowledgeResponse:
        """Return the results of acknowledgements, by topic."""
        image = self.sources.image()
        topics: dict[Uuid, list[acknowledge_messages.PartitionData]] = {}
        leaders: set[int] = set()
        for place, code in codes.items():
            row = acknowledge_messages.PartitionData(place.partition, code)
            if code is ErrorCode.INVALID_RECORD_STATE:
                row.error_message = "a record is not acquired by this member"
            if code in _TELL_LEADER:
                row.current_leader = acknowledge_messages.LeaderIdAndEpoch(*_leader(image, place))
                leaders.add(row.current_leader.leader_id)
            topics.setdefault(place.topic_id, []).append(row)
        return ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=self.sources.partitions.lock_ms(self.key.group_id),
            responses=[ShareAcknowledgeTopicResponse(*each) for each in topics.items()],
            node_endpoints=[
                acknowledge_messages.NodeEndpoint(*each) for each in self._endpoints(image, leaders)
            ],
        )

    def _endpoints(self, image: Image, leaders: set[int]) -> list[NodeEndpoint]:
        found = (endpoint_of(image, each, self.caller.listener) for each in sorted(leaders))
        return [each for each in found if each is not None]


def _unlisted(opened: Opened, found: Sequence[Fetched]) -> list[Fetched]:
    """Return the partitions that the reply must list although they have no records."""
    if opened.session is None:
        return []
    errors = (each.place for each in found if each.code is not ErrorCode.NONE)
    named_already = {each.place for each in found}
    unlisted = opened.session.take_unlisted(errors)
    return [Fetched(place) for place in unlisted if place not in named_already]


def connection_of(listener: str, peer: Address) -> tuple[str, str, int]:
    """Return a value that identifies a connection among all open ones."""
    return listener, peer.host, peer.port


def _leader(image: Image, place: TopicIdPartition) -> tuple[int, int]:
    topic = image.topics.by_id.get(place.topic_id)
    return current_leader(image, "" if topic is None else topic.name, place.partition)


def _acks_of(
    topics: Iterable[fetch_messages.FetchTopic | acknowledge_messages.AcknowledgeTopic],
) -> Acks:
    """Return the acknowledgements of a request by partition."""
    found: Acks = {}
    for topic in topics:
        for partition in topic.partitions:
            acks = [
                Ack(Offset(each.first_offset), Offset(each.last_offset), each.acknowledge_types)
                for each in partition.acknowledgement_batches
            ]
            if acks:
                found.setdefault(
                    TopicIdPartition(topic.topic_id, partition.partition_index), []
                ).extend(acks)
    return found
