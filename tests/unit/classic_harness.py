"""A shard of groups over an in-memory log, and members that use the classic protocol."""

from typing import Any

from coordinator_harness import FakeClock, FakeLog
from msgspec.structs import replace

from ottla.coordinators.decision import Decision
from ottla.coordinators.groups.classic.group import ClassicGroup
from ottla.coordinators.groups.classic.join import Joining
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.requests import (
    decide_delete_groups,
    decide_heartbeat,
    decide_leave,
    decide_offset_commit,
    decide_sync,
    decide_txn_offset_commit,
)
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.pending_replies import RecordedReply
from ottla.coordinators.shard import Shard, ShardSettings
from ottla.protocol.internal.group_records import decode_group_record
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.protocol.records.control import EndTxnMarker
from ottla.protocol.records.reader import read_records
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import LeaderEpoch

SUBSCRIBED_T = bytes.fromhex("000100000001000174ffffffff")
"""A consumer's subscription, version 1, to topic ``t``, truncated where version 0 ends."""

SETTINGS = GroupSettings(
    max_size=3,
    initial_rebalance_delay_ms=1000,
    offset_metadata_max_bytes=10,
    offsets_retention_ms=100_000,
    offsets_retention_check_interval_ms=10_000,
)

FORMING_MS = 2000
"""The duration of a first rebalance: the initial delay, extended once by another member."""


class Harness:
    """One shard. Requests return their futures; `RecordedReply.reply` is the reply."""

    def __init__(
        self,
        log: FakeLog | None = None,
        settings: GroupSettings = SETTINGS,
        clock: FakeClock | None = None,
    ) -> None:
        self.log = log or FakeLog()
        self.clock = clock or FakeClock()
        self.machine = GroupMachine(settings)
        self.ids = 0
        self.futures: list[RecordedReply] = []
        self.shard = Shard(
            "__consumer_offsets-0",
            LeaderEpoch(1),
            self.log,
            self.machine,
            ShardSettings(self.clock, decode_group_record, load_bytes=500),
        )
        while not self.shard.load_step():
            pass

    def submit(self, decide: Any) -> RecordedReply:
        future = RecordedReply()
        self.futures.append(future)
        self.shard.submit(lambda machine, now: decide(machine, now, future), future)
        return future

    def join(
        self,
        member_id: str = "",
        *,
        version: int = 3,
        instance: str | None = None,
        protocols: str | dict[str, bytes] = "range",
        group: str = "g",
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 30_000,
    ) -> RecordedReply:
        """Join; protocols as ``"range roundrobin"``, each with a subscription to topic t."""
        if isinstance(protocols, str):
            protocols = {name: SUBSCRIBED_T for name in protocols.split()}
        self.ids += 1
        fresh_id = f"m{self.ids}"
        request = JoinGroupRequest(
            group,
            session_ms,
            rebalance_ms,
            member_id,
            instance,
            protocol_type,
            [JoinGroupRequestProtocol(name, data) for name, data in protocols.items()],
        )

        def decide(machine: GroupMachine, now: Any, future: Any) -> Decision:
            ids = fresh_id, f"uuid-{fresh_id}"
            joining = Joining(request, version, "client", "/1.2.3.4", *ids, future)
            return machine.join_classic(joining, now)

        return self.submit(decide)

    def sync(
        self, member_id: str, generation: int, group: str = "g", **assignments: bytes
    ) -> RecordedReply:
        request = SyncGroupRequest(
            group,
            generation,
            member_id,
            assignments=[SyncGroupRequestAssignment(*each) for each in assignments.items()],
        )
        return self.submit(lambda m, now, future: decide_sync(m, request, future, now))

    def heartbeat(
        self, member_id: str, generation: int, instance: str | None = None, group: str = "g"
    ) -> int:
        request = HeartbeatRequest(group, generation, member_id, instance)
        future = self.submit(lambda m, now, _: decide_heartbeat(m, request, now))
        return int(future.reply.error_code)

    def leave(self, *members: str | tuple[str, str], group: str = "g") -> list[int]:
        identities = [
            MemberIdentity(each) if isinstance(each, str) else MemberIdentity(each[0], each[1])
            for each in members
        ]
        request = LeaveGroupRequest(group, members=identities)
        future = self.submit(lambda m, now, _: decide_leave(m, request, now))
        return [each.error_code for each in future.reply.members]

    def commit(
        self,
        offset: int = 1,
        member_id: str = "",
        generation: int = -1,
        *,
        group: str = "g",
        partition: int = 0,
        **fields: Any,
    ) -> RecordedReply:
        metadata = fields.pop("metadata", "")
        version = fields.pop("version", 9)
        topic = fields.pop("topic", "t")
        where = OffsetCommitRequestPartition(partition, offset, 5, metadata)
        request = OffsetCommitRequest(
            group,
            generation,
            member_id,
            topics=[OffsetCommitRequestTopic(topic, partitions=[where])],
            **fields,
        )
        return self.submit(lambda m, now, _: decide_offset_commit(m, request, version, now))

    def commit_code(self, *args: Any, **fields: Any) -> int:
        future = self.commit(*args, **fields)
        return int(future.reply.topics[0].partitions[0].error_code)

    def txn_commit(
        self, producer: int, offset: int, *, group: str = "g", generation: int = -1
    ) -> RecordedReply:
        where = TxnOffsetCommitRequestPartition(0, offset)
        request = TxnOffsetCommitRequest(
            "tx",
            group,
            producer,
            0,
            generation,
            topics=[TxnOffsetCommitRequestTopic("t", partitions=[where])],
        )
        return self.submit(lambda m, now, _: decide_txn_offset_commit(m, request, 3, now))

    def end_txn(self, producer: int, *, is_commit: bool) -> RecordedReply:
        future = RecordedReply()
        self.shard.end_transaction(Producer(producer, 0), EndTxnMarker(is_commit, 0), future)
        return future

    def delete(self, *groups: str) -> list[int]:
        future = self.submit(lambda m, now, _: decide_delete_groups(m, groups))
        return [each.error_code for each in future.reply]

    def pass_ms(self, ms: int) -> None:
        """Let time pass and fire the timers that are due."""
        end = self.clock.mono + ms
        while (due := self.shard.next_due()) is not None and due <= end:
            self.clock.advance(max(0, due - self.clock.mono))
            self.shard.on_due()
        self.clock.advance(end - self.clock.mono)

    @property
    def group(self) -> ClassicGroup:
        found = self.machine.classic("g")
        assert found is not None
        return found

    def records(self) -> list[Any]:
        """All records of the log, decoded."""
        return [
            decode_group_record(record.key, record.value)
            for batch in self.log.batches
            for record in read_records(batch)
        ]

    def reload(self) -> "Harness":
        """Another leadership over the same log."""
        self.shard.close()
        return Harness(self.log, self.machine.settings, self.clock)

    def stable(self, count: int = 2, **fields: Any) -> list[str]:
        """Form a group of ``count`` members with assignments; return their ids, leader first."""
        futures = [self.join(**fields) for _ in range(count)]
        self.pass_ms(FORMING_MS)
        ids = [future.reply.member_id for future in futures]
        generation = futures[0].reply.generation_id
        for member_id in ids[1:]:
            self.sync(member_id, generation)
        self.sync(ids[0], generation, **{each: each.encode() for each in ids})
        return ids


def lenient(**changes: Any) -> GroupSettings:
    return replace(SETTINGS, **changes)
