"""The APIs of committed offsets: OffsetCommit, OffsetFetch, OffsetDelete.

The coordinator identifies topics by name. Versions that identify them by id (10 of OffsetCommit and
OffsetFetch) have the ids replaced by names in the request, and the names by ids in the reply.
Topics and partitions that do not exist, or that the caller may not use, are answered here and never
reach the coordinator.

OffsetCommit has one general path, `OffsetHandlers.on_commit`, and one fast path for plain commits,
`commit_fast_path.py`. Both use the same authorization decisions (`access_decisions.py`).
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from ottla.api.groups.commit_fast_path import CommitFastPath
from ottla.api.groups.group_access import ALLOW_ALL, GroupAccess
from ottla.api.security.access_decisions import AccessDecisions
from ottla.api.surface.replies import ITEMS_PER_STEP, Reply, Steps, Work, finish
from ottla.api.surface.routes import Caller, FastPath
from ottla.coordinators.groups.requests import (
    commit_refused,
    decide_fetch,
    decide_offset_commit,
    decide_offset_delete,
    decide_stable_fetch,
    read_offsets,
)
from ottla.coordinators.groups.service import GroupCoordinator
from ottla.metadata.image import Image
from ottla.metadata.topics import Topic
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import CoordinatorNotAvailable, Fault, NotAuthorized
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.protocol.types import Uuid
from ottla.runtime.pending import Pending, completed

_TOPIC_IDS_SINCE: Final = 10
_GROUPS_SINCE: Final = 8
# Older responses have no error code for the whole request.
_TOP_LEVEL_ERROR_SINCE: Final = 2
_NO_OFFSET: Final = -1


COMMITS_MAX: Final = 50_000
"""Offsets in one write. As in Kafka a commit is one batch, and far fewer fit into it by default."""


class CommitTooLarge(Fault):
    """A commit that no batch of ``__consumer_offsets`` could hold; Kafka's error for it."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class OffsetHandlers:
    """The handlers of one broker."""

    def __init__(
        self,
        groups: GroupCoordinator,
        image: Callable[[], Image],
        access: GroupAccess = ALLOW_ALL,
    ) -> None:
        self.groups = groups
        self.image = image
        self.access = access
        self._group_reads = AccessDecisions(access.read_group, access.version)
        self._topic_reads = AccessDecisions(access.read_topic, access.version)

    def fast_path(self) -> FastPath:
        """Return the fast path of OffsetCommit."""
        return CommitFastPath(self.groups, self.image, self._group_reads, self._topic_reads).serve

    # -- commit ------------------------------------------------------------------

    def on_commit(
        self, caller: Caller, request: OffsetCommitRequest, version: int
    ) -> Reply | Steps[Reply]:
        """OffsetCommit; with many topics in steps, and in one write all the same."""
        if not self._group_reads.ask(caller, request.group_id):
            raise NotAuthorized(f"{caller.principal} may not read group {request.group_id!r}")
        steps = self._commit_steps(caller, request, version)
        return steps if len(request.topics) > ITEMS_PER_STEP else finish(steps)

    def _commit_steps(
        self, caller: Caller, request: OffsetCommitRequest, version: int
    ) -> Steps[Reply]:
        known: list[OffsetCommitRequestTopic] = []
        answered: list[OffsetCommitResponseTopic] = []
        for count, topic in enumerate(request.topics, 1):
            self._sort_commit(caller, topic, version, known, answered)
            if not count % ITEMS_PER_STEP:
                yield
        if not known:
            return OffsetCommitResponse(topics=answered)
        if sum(len(topic.partitions) for topic in known) > COMMITS_MAX:
            raise CommitTooLarge(f"more than {COMMITS_MAX} offsets do not fit one batch")
        request.topics = known

        def merge(reply: OffsetCommitResponse) -> OffsetCommitResponse:
            if not answered:
                return reply  # a topic named twice is answered twice
            return OffsetCommitResponse(topics=_merged(answered, reply.topics))

        reply: Pending[OffsetCommitResponse] = self.groups.runtime.write(
            request.group_id,
            lambda machine, now: decide_offset_commit(machine, request, version, now),
            may_linger=True,
        )
        return reply.map(merge, lambda fault: merge(commit_refused(request, fault.code)))

    def _sort_commit(
        self,
        caller: Caller,
        topic: OffsetCommitRequestTopic,
        version: int,
        known: list[OffsetCommitRequestTopic],
        answered: list[OffsetCommitResponseTopic],
    ) -> None:
        """Put what can be committed into ``known``; ``answered`` gets the other results."""
        found = self._find(topic, version)
        code = self._objection(caller, topic.name, found, version)
        if code is ErrorCode.NONE and found is not None:
            there = found.partitions
            if topic.partitions and all(each.partition_index in there for each in topic.partitions):
                known.append(topic)
                return
        refused: list[OffsetCommitResponsePartition] = []
        taken = []
        for each in topic.partitions:
            if code is ErrorCode.NONE and found is not None:
                if each.partition_index in found.partitions:
                    taken.append(each)
                    continue
                missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                refused.append(OffsetCommitResponsePartition(each.partition_index, missing))
            else:
                refused.append(OffsetCommitResponsePartition(each.partition_index, code))
        if refused:
            answered.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, refused))
        if taken:
            known.append(OffsetCommitRequestTopic(topic.name, topic.topic_id, taken))

    def _find(self, topic: OffsetCommitRequestTopic, version: int) -> Topic | None:
        topics = self.image().topics
        if version < _TOPIC_IDS_SINCE:
            return topics.named(topic.name)
        found = topics.by_id.get(topic.topic_id)
        topic.name = "" if found is None else found.name
        return found

    def _objection(self, caller: Caller, name: str, found: Topic | None, version: int) -> ErrorCode:
        if found is None and version >= _TOPIC_IDS_SINCE:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not self._topic_reads.ask(caller, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else ErrorCode.NONE

    # -- fetch -------------------------------------------------------------------

    def on_fetch(self, caller: Caller, request: OffsetFetchRequest, version: int) -> Reply:
        """OffsetFetch, of one group before version 8."""
        if version >= _GROUPS_SINCE:
            if len(request.groups) == 1:
                one = self._fetch(caller, request.groups[0], request.require_stable, version)
                return one.map(lambda group: OffsetFetchResponse(groups=[group]))
            return Work(self._fetch_several(caller, request, version))
        topics = None
        if request.topics is not None:
            topics = [
                OffsetFetchRequestTopics(topic.name, partition_indexes=topic.partition_indexes)
                for topic in request.topics
            ]
        group = OffsetFetchRequestGroup(request.group_id, topics=topics)
        fetched = self._fetch(caller, group, request.require_stable, version)
        return fetched.map(lambda reply: _single(reply, group, version))

    async def _fetch_several(
        self, caller: Caller, request: OffsetFetchRequest, version: int
    ) -> OffsetFetchResponse:
        stable = request.require_stable
        answers = [self._fetch(caller, group, stable, version) for group in request.groups]
        return OffsetFetchResponse(groups=list(await asyncio.gather(*answers)))

    def _fetch(
        self, caller: Caller, group: OffsetFetchRequestGroup, require_stable: bool, version: int
    ) -> Pending[OffsetFetchResponseGroup]:
        """Fetch the offsets of one group; a failure is the result of this group alone."""
        if not self.access.describe_group(caller, group.group_id):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            return completed(OffsetFetchResponseGroup(group.group_id, error_code=code))
        if group.topics is None:
            return self._ask(group, require_stable, lambda r: self._visible(caller, r, version))
        hidden: list[OffsetFetchResponseTopics] = []
        known = list(self._sort_fetch(caller, group.topics, version, hidden))
        asked = OffsetFetchRequestGroup(group.group_id, group.member_id, group.member_epoch, known)

        def merge(reply: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
            if reply.error_code == ErrorCode.NONE:
                reply.topics = [*reply.topics, *hidden]
            return reply

        return self._ask(asked, require_stable, merge)

    def _ask(
        self,
        group: OffsetFetchRequestGroup,
        require_stable: bool,
        change: Callable[[OffsetFetchResponseGroup], OffsetFetchResponseGroup],
    ) -> Pending[OffsetFetchResponseGroup]:
        try:
            reply = self._read(group, require_stable=require_stable)
        except Fault as fault:
            return completed(_fetch_refused(group.group_id, fault))
        return reply.map(change, lambda fault: _fetch_refused(group.group_id, fault))

    def _read(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> Pending[OffsetFetchResponseGroup]:
        runtime, group_id = self.groups.runtime, request.group_id
        if require_stable:
            return runtime.write(
                group_id, lambda machine, now: decide_stable_fetch(machine, request)
            )
        if runtime.shard(runtime.index_of(group_id)).is_caught_up:
            return completed(read_offsets(runtime.read(group_id), request))
        # A committed offset must never go back: answer once the log is committed to its end.
        return runtime.write(group_id, lambda machine, now: decide_fetch(machine, request))

    def _sort_fetch(
        self,
        caller: Caller,
        topics: list[OffsetFetchRequestTopics],
        version: int,
        hidden: list[OffsetFetchResponseTopics],
    ) -> Iterable[OffsetFetchRequestTopics]:
        """Yield the topics that the caller may describe; ``hidden`` gets the others' results."""
        for topic in topics:
            code = ErrorCode.NONE
            if version >= _TOPIC_IDS_SINCE:
                found = self.image().topics.by_id.get(topic.topic_id)
                topic.name = "" if found is None else found.name
                code = ErrorCode.UNKNOWN_TOPIC_ID if found is None else ErrorCode.NONE
            if code is ErrorCode.NONE and not self.access.describe_topic(caller, topic.name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if code is ErrorCode.NONE:
                yield topic
                continue
            partitions = [
                OffsetFetchResponsePartitions(index, _NO_OFFSET, error_code=code)
                for index in topic.partition_indexes
            ]
            hidden.append(OffsetFetchResponseTopics(topic.name, topic.topic_id, partitions))

    def _visible(
        self, caller: Caller, reply: OffsetFetchResponseGroup, version: int
    ) -> OffsetFetchResponseGroup:
        """Leave out topics that the caller may not describe, and by id those deleted since."""
        shown: list[OffsetFetchResponseTopics] = []
        for topic in reply.topics:
            if not self.access.describe_topic(caller, topic.name):
                continue
            if version >= _TOPIC_IDS_SINCE:
                topic_id = self.image().topics.ids.get(topic.name)
                if topic_id is None:
                    continue
                topic.topic_id = topic_id
            shown.append(topic)
        reply.topics = shown
        return reply

    # -- delete ------------------------------------------------------------------

    def on_delete(
        self, caller: Caller, request: OffsetDeleteRequest, version: int
    ) -> OffsetDeleteResponse | Pending[OffsetDeleteResponse]:
        """OffsetDelete."""
        if not self.access.delete_group(caller, request.group_id):
            raise NotAuthorized(f"{caller.principal} may not delete group {request.group_id!r}")
        known: list[OffsetDeleteRequestTopic] = []
        answered: list[OffsetDeleteResponseTopic] = []
        for topic in request.topics:
            found = self.image().topics.named(topic.name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not self.access.read_topic(caller, topic.name):
                found, code = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
            there = set() if found is None else set(found.partitions)
            taken = [each for each in topic.partitions if each.partition_index in there]
            refused = [
                OffsetDeleteResponsePartition(each.partition_index, code)
                for each in topic.partitions
                if each.partition_index not in there
            ]
            if refused:
                answered.append(OffsetDeleteResponseTopic(topic.name, refused))
            if taken:
                known.append(OffsetDeleteRequestTopic(topic.name, taken))
        request.topics = known

        def merge(reply: OffsetDeleteResponse) -> OffsetDeleteResponse:
            if answered and reply.error_code == ErrorCode.NONE:
                reply.topics = _merged_deletes(answered, reply.topics)
            return reply

        if not request.group_id:
            return merge(OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        deleted: Pending[OffsetDeleteResponse] = self.groups.runtime.write(
            request.group_id, lambda machine, now: decide_offset_delete(machine, request)
        )
        return deleted.map(merge)


def _merged(
    answered: list[OffsetCommitResponseTopic], topics: list[OffsetCommitResponseTopic]
) -> list[OffsetCommitResponseTopic]:
    """Return both lists, with the partitions of each topic together; an unknown id has no name."""
    found: dict[tuple[str, Uuid], OffsetCommitResponseTopic] = {}
    for topic in (*answered, *topics):
        same = found.setdefault((topic.name, topic.topic_id), topic)
        if same is not topic:
            same.partitions.extend(topic.partitions)
    return list(found.values())


def _merged_deletes(
    answered: list[OffsetDeleteResponseTopic], topics: list[OffsetDeleteResponseTopic]
) -> list[OffsetDeleteResponseTopic]:
    found: dict[str, OffsetDeleteResponseTopic] = {}
    for topic in (*answered, *topics):
        same = found.setdefault(topic.name, topic)
        if same is not topic:
            same.partitions.extend(topic.partitions)
    return list(found.values())


def _fetch_refused(group_id: str, fault: Fault) -> OffsetFetchResponseGroup:
    """Return a failed result. Consumers before 3.9 retry only NOT_COORDINATOR."""
    code = fault.code
    if isinstance(fault, CoordinatorNotAvailable):
        code = ErrorCode.NOT_COORDINATOR
    return OffsetFetchResponseGroup(group_id, error_code=code)


def _single(
    reply: OffsetFetchResponseGroup, group: OffsetFetchRequestGroup, version: int
) -> OffsetFetchResponse:
    """Return the reply of a version with one group.

    Version 1 has no error code for the group, so each requested partition carries it.
    """
    code = ErrorCode(reply.error_code)
    if code is not ErrorCode.NONE and version < _TOP_LEVEL_ERROR_SINCE:
        topics = [
            OffsetFetchResponseTopic(
                topic.name,
                [
                    OffsetFetchResponsePartition(index, _NO_OFFSET, error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in group.topics or ()
        ]
        return OffsetFetchResponse(topics=topics)
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(
                    each.partition_index,
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.metadata,
                    each.error_code,
                )
                for each in topic.partitions
            ],
        )
        for topic in reply.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=code)
