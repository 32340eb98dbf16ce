"""Dead letters of a share group while brokers are killed, and a redrive that they interrupt.

No letter is lost or written twice, and a redrive brings every record back exactly once.
"""

import asyncio
from pathlib import Path

import pytest
from test_share_cluster import AWAY, Member, Moved
from tests.patience import SECONDS_MAX
from tests.redriving import (
    DURABLE,
    check_letters,
    check_redrive,
    leader_of,
    letters_in,
    origins,
    set_up,
)

from ottla.cli.connecting.session import client_ports, parse_bootstrap
from ottla.client.cluster import Cluster as Client
from ottla.protocol.messages import share_acknowledge as acknowledging
from ottla.protocol.types import NodeId
from ottla.testing.cluster import Cluster, run_cluster

pytestmark = pytest.mark.nightly  # wire/test_cli_dlq.py has the same promise, step by step

RECORDS = 40
ACCEPT, RELEASE, REJECT = 1, 2, 3


def kind_of(offset: int) -> int:
    """Reject a third, never finish another third, accept the rest."""
    return (REJECT, RELEASE, ACCEPT)[offset % 3]


class Worker(Member):
    """Accepts, rejects and releases by the offset of a record; records what was confirmed."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.accepted: set[int] = set()

    async def _accept(self, leader: NodeId, got: list[tuple[int, int]], offsets: list[int]) -> None:
        topic_id = (await self.client.topic("orders")).topic_id
        batches = [
            acknowledging.AcknowledgementBatch(first, last, [kind_of(n) for n in offsets_of])
            for first, last in got
            if (offsets_of := range(first, last + 1))
        ]
        rows = [acknowledging.AcknowledgePartition(0, batches)]
        request = acknowledging.ShareAcknowledgeRequest(
            group_id="queue",
            member_id="member-1",
            share_session_epoch=self.session,
            topics=[acknowledging.AcknowledgeTopic(topic_id, rows)],
        )
        reply = await self.client.send_to(leader, request, acknowledging.ShareAcknowledgeResponse)
        self._check(reply.error_code)
        self.session += 1
        for row in (row for topic in reply.responses for row in topic.partitions):
            self._check(row.error_code)
        self.accepted |= {offset for offset in offsets if kind_of(offset) == ACCEPT}


def test_dead_letters_and_their_redrive_survive_killed_brokers(tmp_path: Path) -> None:
    with run_cluster(3, processes=True, config=DURABLE) as cluster:
        lines = tmp_path / "lines"
        lines.write_text("".join(f"{number}\n" for number in range(RECORDS)))
        set_up(cluster, str(lines))
        accepted = asyncio.run(consume_with_kills(cluster))
        dead = {offset for offset in range(RECORDS) if kind_of(offset) != ACCEPT}
        check_redrive(cluster, check_letters(cluster, dead, accepted))


async def consume_with_kills(cluster: Cluster) -> set[int]:
    """Work off the topic while the leaders of orders and of its dead letters are killed."""
    dead = {offset for offset in range(RECORDS) if kind_of(offset) != ACCEPT}
    async with await Client.open(client_ports(), parse_bootstrap(cluster.bootstrap)) as client:
        member = Worker(client)
        await member.work(lambda: len(member.accepted) >= 3)
        for topic in ("orders", "dlq.orders"):
            leader = await asyncio.to_thread(leader_of, cluster, topic)
            await asyncio.to_thread(cluster.kill, leader)
            goal = len(member.accepted) + 3
            await member.work(lambda goal=goal: len(member.accepted) >= goal)
            await asyncio.to_thread(cluster.start, leader)
        async with asyncio.timeout(SECONDS_MAX):
            while not dead <= set(origins(await asyncio.to_thread(letters_in, cluster))):
                try:
                    await member.beat()
                    await member.round()
                except (*AWAY, Moved):
                    member.leader = None
                    await asyncio.sleep(0.1)
        return member.accepted
