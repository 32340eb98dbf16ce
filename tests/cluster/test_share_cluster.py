"""A share group while leaders change: of its partition, of its state, of the group itself.

Acknowledged records are not delivered again, and none is lost.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.patience import SECONDS_MAX
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.cli.connecting.session import client_ports, parse_bootstrap
from ottla.client.admin import Change, Resource, alter_configs
from ottla.client.admin_share import share_offsets
from ottla.client.cluster import Cluster as Client
from ottla.client.cluster import NoBroker, Refused
from ottla.client.connection import ConnectionLost
from ottla.client.coordinators import CoordinatorType, ask_coordinator
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.messages import share_acknowledge as acknowledging
from ottla.protocol.messages import share_fetch as fetching
from ottla.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ottla.protocol.types import NodeId, TopicPartition
from ottla.testing.cluster import Cluster, run_cluster

ORDERS = TopicPartition("orders", 0)
RECORDS = 60
ACCEPT = 1
AWAY = (NoBroker, ConnectionLost, RequestTimedOut, Refused)
CONFIG = {
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 3,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.min.isr": 2,
    "broker.session.timeout.ms": 4000,
    "broker.heartbeat.interval.ms": 500,
}


# Whose leader stops, and how many records are acknowledged before it is back.
CHANGES = {
    "stop": [
        ("orders", 20),
        ("__share_group_state", 35),
        ("__consumer_offsets", 45),
        ("orders", RECORDS),
    ],
    "kill": [("orders", 30), ("__share_group_state", RECORDS)],
}


class Moved(Exception):
    """The leader has changed."""


class Member:
    """A share consumer that follows its leader and records a history."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.epoch = 0
        self.session = 0
        self.leader: NodeId | None = None
        self.acknowledged: set[int] = set()
        self.again: list[int] = []

    async def beat(self) -> None:
        names = ["orders"] if self.epoch == 0 else None
        request = ShareGroupHeartbeatRequest("queue", "member-1", self.epoch, None, names)

        async def ask(node_id: NodeId) -> ShareGroupHeartbeatResponse:
            reply = await self.client.send_to(node_id, request, ShareGroupHeartbeatResponse)
            if reply.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
                self.epoch = 0
            elif reply.error_code:
                raise Refused(reply.error_code, "queue")
            else:
                self.epoch = reply.member_epoch
            return reply

        await ask_coordinator(self.client, CoordinatorType.GROUP, "queue", ask)

    async def round(self) -> int:
        """Fetch some records and accept them; return how many."""
        leader = (await self.client.leader_of(ORDERS)).node_id
        if leader != self.leader:
            self.leader, self.session = leader, 0
        topic_id = (await self.client.topic("orders")).topic_id
        request = fetching.ShareFetchRequest(
            group_id="queue",
            member_id="member-1",
            share_session_epoch=self.session,
            max_wait_ms=300,
            max_records=7,
            max_bytes=1 << 20,
            share_acquire_mode=1,
            topics=[fetching.FetchTopic(topic_id, [fetching.FetchPartition(0)])],
        )
        reply = await self.client.send_to(leader, request, fetching.ShareFetchResponse)
        self._check(reply.error_code)
        rows = [row for topic in reply.responses for row in topic.partitions]
        self.session += 1
        for row in rows:
            self._check(row.error_code)
        got = [
            (each.first_offset, each.last_offset) for row in rows for each in row.acquired_records
        ]
        offsets = [offset for first, last in got for offset in range(first, last + 1)]
        self.again += [offset for offset in offsets if offset in self.acknowledged]
        if got:
            await self._accept(leader, got, offsets)
        return len(offsets)

    async def _accept(self, leader: NodeId, got: list[tuple[int, int]], offsets: list[int]) -> None:
        topic_id = (await self.client.topic("orders")).topic_id
        replies = [acknowledging.AcknowledgementBatch(first, last, [ACCEPT]) for first, last in got]
        request = acknowledging.ShareAcknowledgeRequest(
            group_id="queue",
            member_id="member-1",
            share_session_epoch=self.session,
            topics=[
                acknowledging.AcknowledgeTopic(
                    topic_id, [acknowledging.AcknowledgePartition(0, replies)]
                )
            ],
        )
        reply = await self.client.send_to(leader, request, acknowledging.ShareAcknowledgeResponse)
        self._check(reply.error_code)
        self.session += 1
        ((row,),) = ([row for row in topic.partitions] for topic in reply.responses)
        self._check(row.error_code)
        self.acknowledged.update(offsets)

    def _check(self, code: int) -> None:
        if code != ErrorCode.NONE:
            self.leader = None  # start a new session
            self.client.forget("orders")
            raise Moved(ErrorCode(code).name)

    async def work(self, is_enough: Callable[[], bool], seconds: float = SECONDS_MAX) -> None:
        """Continue until enough records are accepted, whatever moves."""
        async with asyncio.timeout(seconds):
            while not is_enough():
                try:
                    await self.beat()
                    await self.round()
                except (*AWAY, Moved):
                    self.leader = None
                    self.client.forget("orders")
                    await self.client.metadata([])
                    await asyncio.sleep(0.1)


def command(cluster: Cluster, *arguments: str) -> list[dict]:
    done = CliRunner().invoke(
        app, [*arguments, "-o", "json"], env={"OTTLA_BOOTSTRAP": cluster.bootstrap}
    )
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def leader_of(cluster: Cluster, topic: str) -> int:
    (found,) = command(cluster, "topic", "describe", topic)
    return int(found["partitions"][0]["leader"])


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_share_records_survive_leader_changes_without_redelivery_or_loss(
    tmp_path: Path, how: str
) -> None:
    with run_cluster(3, processes=how == "kill", config=CONFIG) as cluster:
        command(cluster, "topic", "create", "orders", "-p", "1", "-r", "3")
        lines = tmp_path / "lines"
        lines.write_text("".join(f"{number}\n" for number in range(RECORDS)))
        command(cluster, "produce", "orders", str(lines))
        end = cluster.kill if how == "kill" else cluster.stop
        asyncio.run(scenario(cluster, end, CHANGES[how]))


async def scenario(
    cluster: Cluster, end: Callable[[int], None], changes: Sequence[tuple[str, int]]
) -> None:
    async with await Client.open(client_ports(), parse_bootstrap(cluster.bootstrap)) as client:
        reset = [Change("share.auto.offset.reset", "earliest")]
        await alter_configs(client, Resource.GROUP, "queue", reset)
        member = Member(client)
        await member.work(lambda: len(member.acknowledged) >= 10)

        for topic, count in changes:
            leader = await asyncio.to_thread(leader_of, cluster, topic)
            await asyncio.to_thread(end, leader)
            await member.work(lambda: len(member.acknowledged) >= count)  # noqa: B023
            await asyncio.to_thread(cluster.start, leader)

        assert member.again == [], "what was acknowledged is not delivered again"
        assert member.acknowledged == set(range(RECORDS)), "and nothing is lost"
        found = await share_offsets(client, "queue")
        assert (found[ORDERS].start, found[ORDERS].lag) == (RECORDS, 0), "answered by any leader"
