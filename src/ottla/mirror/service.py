"""A mirror: opens both clusters' state, copies, keeps the target in step, and switches over.

    mirror = await open_mirror(clusters, options)
    await mirror.run(report)              # until cancelled
    await mirror.switch_over(...)         # until caught up, then closes the mirror

Only one process of a mirror writes: a newer one stops the older (`state_log.py`).
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from ottla.client.admin import DEFAULT, describe_cluster
from ottla.client.admin_transactions import fence
from ottla.client.cluster import NoBroker, Refused
from ottla.client.connection import ConnectionLost
from ottla.client.offset_spec import LATEST
from ottla.client.offsets import list_offsets
from ottla.mirror.appender import Appender
from ottla.mirror.copying import Copier
from ottla.mirror.linking import Ends, begin_link, fill, read_ends, resume_link
from ottla.mirror.metadata_sync import (
    Clusters,
    GroupSync,
    Problems,
    read_topics,
    sync_acls,
    sync_topics,
)
from ottla.mirror.offset_map import is_identity, source_end, target_end
from ottla.mirror.records_of_state import (
    ACLS_KEY,
    OWNER_KEY,
    CopiedAcls,
    Link,
    Owner,
    decode,
    encode,
    partition_key,
    partition_of,
    state_topic,
)
from ottla.mirror.state_log import StateLog, TakenOver
from ottla.mirror.topic_rules import TopicFacts
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.types import TopicPartition

OPEN_ATTEMPTS_MAX: Final = 10
_TRANSIENT: Final = (NoBroker, ConnectionLost, RequestTimedOut)


class MirrorRefused(Exception):
    """The mirror cannot run; the text says why and what to do."""


class SwitchedOver(MirrorRefused):
    """The mirror was switched over already; nothing is copied any more."""


class MirrorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a mirror. ``fill_max``: offsets that an empty target partition is filled with."""

    name: str = "mirror"
    topics: re.Pattern[str]
    refresh_s: float = 10.0
    replication_factor: int = DEFAULT
    fill_max: int = 100_000_000
    may_append: bool = False
    copies_acls: bool = True
    copies_groups: bool = True


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of a running mirror."""

    partition: TopicPartition
    position: int
    lag: int
    is_identity: bool


Report = Callable[["Mirror"], None]


class Mirror:
    """A mirror that this process owns. Created by `open_mirror`."""

    def __init__(
        self, clusters: Clusters, options: MirrorOptions, owner: Owner, state: StateLog
    ) -> None:
        appender = Appender(clusters.target, owner.producer_id, owner.producer_epoch)
        self.copier = Copier(clusters.source, clusters.target, appender, state)
        self.problems: Problems = {}
        self.groups = 0
        self.source_ends: dict[TopicPartition, int] = {}
        self._clusters = clusters
        self._options = options
        self._owner = owner
        self._state = state
        self._appender = appender
        self._stored: dict[TopicPartition, Link] = {}
        self._acls = CopiedAcls()
        self._group_sync = GroupSync(clusters)

    def remember(self, stored: dict[TopicPartition, Link], acls: CopiedAcls) -> None:
        """Set what the state topic said at the start."""
        self._stored, self._acls = stored, acls

    # -- running -----------------------------------------------------------------

    async def run(self, report: Report) -> None:
        """Copy until cancelled; ``report`` is called after each refresh.

        Raises:
            TakenOver, ForeignWrite, Refused: it cannot go on.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.copier.run())
                while True:
                    await self._refresh_patiently()
                    report(self)
                    await asyncio.sleep(self._options.refresh_s)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    async def switch_over(self, report: Report, *, quiet_s: float, timeout_s: float) -> list[str]:
        """Copy until the source does not grow any more and everything is copied; then close.

        Returns the partitions that are not caught up: empty if the switch-over was done.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                copying = tasks.create_task(self.copier.run())
                behind = await self._catch_up(report, quiet_s, timeout_s)
                copying.cancel()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        if not behind:
            await self._close()
        return behind

    async def _catch_up(self, report: Report, quiet_s: float, timeout_s: float) -> list[str]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        quiet_since, ends = loop.time(), dict[TopicPartition, int]()
        while True:
            await self._refresh_patiently()
            report(self)
            behind = [str(each.partition) for each in self.progress() if each.lag > 0]
            behind += sorted(self.problems)
            if behind or ends != self.source_ends:
                quiet_since, ends = loop.time(), dict(self.source_ends)
            elif loop.time() - quiet_since >= quiet_s:
                return []
            if loop.time() >= deadline:
                return behind or ["the source still grows"]
            await asyncio.sleep(min(self._options.refresh_s, quiet_s / 2, 1.0))

    async def _close(self) -> None:
        """Sync everything a last time, with the settings that were held back; mark it as closed."""
        sources = await read_topics(self._clusters.source, self._options.topics)
        problems = await sync_topics(
            self._clusters,
            sources,
            self._options.topics,
            self._options.replication_factor,
            is_final=True,
        )
        if self._options.copies_groups:
            self.groups, refused = await self._group_sync.run(self.copier.links)
            problems |= refused
        self.problems = problems
        self._owner = replace(self._owner, is_closed=True)
        # With how far each partition was copied: clients of the target move its end from now on.
        positions = self.copier.positions
        last = {
            partition_key(at): encode(
                replace(
                    link,
                    position=positions.get(at, source_end(link.runs)),
                    position_end=target_end(link.runs),
                )
            )
            for at, link in self.copier.links.items()
        }
        await self._state.append({**last, OWNER_KEY: encode(self._owner)})

    def progress(self) -> list[Progress]:
        """Return how far each partition is, as of the last refresh."""
        positions = self.copier.positions
        return [
            Progress(
                partition=at,
                position=positions.get(at, 0),
                lag=max(self.source_ends.get(at, 0) - positions.get(at, 0), 0),
                is_identity=is_identity(link.runs),
            )
            for at, link in sorted(self.copier.links.items())
        ]

    # -- refreshing --------------------------------------------------------------

    async def _refresh_patiently(self) -> None:
        try:
            await self.refresh()
        except _TRANSIENT as error:
            self.problems = {"connection": str(error)}
        except Refused as refused:
            self.problems = {refused.subject: str(refused)}

    async def refresh(self) -> None:
        """Pick up new topics, partitions, settings, ACLs and committed offsets.

        Raises:
            TakenOver: another process owns the mirror.
        """
        options, clusters = self._options, self._clusters
        await self._state.check_owner()
        sources = await read_topics(clusters.source, options.topics)
        problems = await sync_topics(clusters, sources, options.topics, options.replication_factor)
        problems |= await self._link_new(sources, problems)
        if options.copies_acls:
            acls, refused = await sync_acls(clusters, self._acls, options.topics, self._record_acls)
            if refused is not None:
                problems["ACLs"] = refused
            await self._record_acls(acls)
        await self.copier.store_positions()
        if options.copies_groups:
            self.groups, refusals = await self._group_sync.run(self.copier.links)
            problems |= refusals
        links = dict.fromkeys(self.copier.links, LATEST)
        ends = await list_offsets(clusters.source, links)
        self.source_ends = {at: offset or 0 for at, offset in ends.items()}
        self.problems = {**problems, **self.copier.problems}

    async def _record_acls(self, acls: CopiedAcls) -> None:
        if acls != self._acls:
            self._acls = acls
            await self._state.append({ACLS_KEY: encode(acls)})

    async def _link_new(self, sources: dict[str, TopicFacts], failed: Problems) -> Problems:
        """Begin or resume the copy of partitions that are not copied yet; return what is wrong."""
        new = [
            at
            for name, topic in sorted(sources.items())
            if name not in failed
            for number in range(topic.partitions)
            if (at := TopicPartition(name, number)) not in self.copier.links
        ]
        if not new:
            return {}
        ends = await read_ends(self._clusters, new)
        await self._begin_links(sources, [at for at in new if at not in self._stored], ends)
        problems: Problems = {}
        for at in new:
            problem = await self._start(sources[at.topic], at, ends)
            if problem is not None:
                problems[str(at)] = problem
        return problems

    async def _begin_links(
        self, sources: dict[str, TopicFacts], new: Sequence[TopicPartition], ends: Ends
    ) -> None:
        """Write the links of new partitions before anything is copied."""
        begun = {
            at: link
            for at in new
            if isinstance(link := self._begin(sources[at.topic], at, ends), Link)
        }
        if begun:
            await self._state.append(
                {partition_key(at): encode(link) for at, link in begun.items()}
            )
            self._stored |= begun

    def _begin(self, topic: TopicFacts, at: TopicPartition, ends: Ends) -> Link | str:
        return begin_link(
            topic,
            at,
            ends,
            fill_max=self._options.fill_max,
            may_append=self._options.may_append,
        )

    async def _start(self, topic: TopicFacts, at: TopicPartition, ends: Ends) -> str | None:
        stored = self._stored.get(at)
        if stored is None:
            refused = self._begin(topic, at, ends)
            return refused if isinstance(refused, str) else None
        end = ends.target_ends[at]
        if end < stored.fill_to or (stored.fill_to and ends.target_starts[at] < stored.fill_to):
            end = await fill(self._clusters.target, self._appender, at, stored, ends)
        resumed = resume_link(stored, topic, end)
        if isinstance(resumed, str):
            return resumed
        self.copier.add(at, *resumed)
        return None


# -- opening -----------------------------------------------------------------------


async def open_mirror(clusters: Clusters, options: MirrorOptions) -> Mirror:
    """Take the mirror over from any other process, and load its state.

    Raises:
        SwitchedOver: it was switched over. MirrorRefused: it copies another cluster, or itself.
        Refused: access is denied.
    """
    source_id = (await describe_cluster(clusters.source)).cluster_id
    if source_id == (await describe_cluster(clusters.target)).cluster_id:
        raise MirrorRefused("--from and --to are the same cluster")
    state = StateLog(clusters.target, state_topic(options.name))
    await state.create(options.replication_factor)
    state.write_as(*await fence(clusters.target, state_topic(options.name)))
    for attempt in range(OPEN_ATTEMPTS_MAX):
        records = await state.load()
        owner = await _next_owner(clusters, records, source_id, options.name)
        try:
            await state.append({OWNER_KEY: encode(owner)})
        except TakenOver:
            if attempt + 1 == OPEN_ATTEMPTS_MAX:
                raise
            await clusters.target.pause(attempt)
            continue
        mirror = Mirror(clusters, options, owner, state)
        mirror.remember(*stored_state(records))
        return mirror
    raise AssertionError("the last attempt returns or raises")


async def _next_owner(
    clusters: Clusters, records: dict[bytes, bytes], source_id: str, name: str
) -> Owner:
    instance = clusters.target.ports.random.bytes(8).hex()
    stored = records.get(OWNER_KEY)
    if stored is None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
        reply = await clusters.target.send_any(request, InitProducerIdResponse)
        if reply.error_code != ErrorCode.NONE:
            raise Refused(reply.error_code, "producer id")
        return Owner(
            producer_id=reply.producer_id,
            producer_epoch=reply.producer_epoch,
            source_cluster=source_id,
            instance=instance,
        )
    owner = decode(stored, Owner)
    if owner.source_cluster != source_id:
        raise MirrorRefused(
            f"mirror {name!r} copies cluster {owner.source_cluster}, --from is {source_id}: use "
            "another --name"
        )
    if owner.is_closed:
        raise SwitchedOver(
            f"mirror {name!r} was switched over: clients write to the target now. To copy again, "
            f"delete the topic {state_topic(name)} and the copied topics, or use another --name"
        )
    return replace(owner, instance=instance)


def stored_state(records: dict[bytes, bytes]) -> tuple[dict[TopicPartition, Link], CopiedAcls]:
    """Return the links and copied ACLs of a state topic. Raises `BadState`."""
    links = {
        at: decode(value, Link)
        for key, value in records.items()
        if (at := partition_of(key)) is not None
    }
    acls = records.get(ACLS_KEY)
    return links, CopiedAcls() if acls is None else decode(acls, CopiedAcls)
