"""DescribeQuorum on a broker: forwarded to the leader of the quorum, answered here without one.

Apache Kafka's broker looks for a leader until the request times out, after 30 s, and answers with
that error: who has lost the majority of the voters then learns nothing about them. This broker
follows the metadata log, so it knows the voters and their addresses. Once it has been without a
leader for `LEADERLESS_MS`, it answers with ``leader_id`` -1, which the protocol has for this, and
with the voters; only its own offset is known.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from ottla.api.cluster.envelope import Forwarder
from ottla.api.cluster.quorum_requests import requested_partitions, unknown_partitions, voter_nodes
from ottla.api.security.access import MayOnCluster
from ottla.api.surface.item_limits import TooManyItems, has_long_list
from ottla.api.surface.replies import Result, paced
from ottla.api.surface.routes import Caller
from ottla.protocol.codec import decode_steps
from ottla.protocol.faults import ClusterNotAuthorized
from ottla.protocol.frames import Request
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla.protocol.types import NO_LEADER, ZERO_UUID, NodeId
from ottla.raft.core.view import QuorumView
from ottla.raft.rpc_codec import PARTITION, TOPIC

LEADERLESS_MS: Final = 500
"""Most elections are over by then, and the new leader answers."""
PARTITIONS_MAX: Final = 1000
"""Partitions of a request, of which one at most is known."""
_CHECK_MS: Final = 50
_UNKNOWN: Final = -1


class QuorumDescriptions(msgspec.Struct, frozen=True):
    """The handler; ``view`` returns the quorum as this node sees it."""

    node_id: NodeId
    forwarder: Forwarder
    view: Callable[[], QuorumView]
    may_describe: MayOnCluster

    def on_describe(self, caller: Caller, request: Request, body: memoryview) -> Awaitable[Result]:
        """Forward a request; answer it here once there is no leader.

        Raises:
            ProtocolFault: at once: the body is not a request.
        """
        return self._describe(caller, request, body, self.forwarder.forward(caller, request, body))

    async def _describe(
        self, caller: Caller, request: Request, body: memoryview, forwarded: Awaitable[Result]
    ) -> Result:
        try:
            async with asyncio.timeout(None) as limit:
                watch = _LeaderWatch(self.view, limit)
                try:
                    return await forwarded
                finally:
                    watch.stop()
        except TimeoutError:
            if not limit.expired():
                raise
        if not self.may_describe(caller):
            raise ClusterNotAuthorized(f"{caller.principal} may not send DescribeQuorum")
        message, _ = await paced(decode_steps(DescribeQuorumRequest, request.version, body))
        if has_long_list(message, PARTITIONS_MAX):
            raise TooManyItems("DescribeQuorum is about one partition.")
        partitions = requested_partitions(message)
        if partitions != [(TOPIC, [PARTITION])]:
            return unknown_partitions(partitions)
        return leaderless(self.view(), self.node_id)


class _LeaderWatch:
    """Ends a wait once the node has had no leader for `LEADERLESS_MS`."""

    def __init__(self, view: Callable[[], QuorumView], limit: asyncio.Timeout) -> None:
        self._view = view
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._led_at = self._loop.time()
        self._timer = self._loop.call_later(_CHECK_MS / 1000, self._check)

    def _check(self) -> None:
        now = self._loop.time()
        if self._view().is_led:
            self._led_at = now
        elif now - self._led_at >= LEADERLESS_MS / 1000:
            self._limit.reschedule(now)
            return
        self._timer = self._loop.call_later(_CHECK_MS / 1000, self._check)

    def stop(self) -> None:
        """Check no more."""
        self._timer.cancel()


def leaderless(view: QuorumView, node_id: NodeId) -> DescribeQuorumResponse:
    """Describe a quorum without a leader, as the node ``node_id`` sees it."""
    voters = [
        ReplicaState(
            voter.key.node_id,
            voter.key.directory_id if view.kraft_version else ZERO_UUID,
            view.log_end_offset if voter.key.node_id == node_id else _UNKNOWN,
            _UNKNOWN,
            _UNKNOWN,
        )
        for voter in view.voters
    ]
    partition = ResponsePartitionData(
        partition_index=PARTITION,
        leader_id=NO_LEADER,
        leader_epoch=view.epoch,
        high_watermark=_UNKNOWN if view.high_watermark is None else view.high_watermark,
        current_voters=voters,
        observers=[],
    )
    return DescribeQuorumResponse(
        topics=[ResponseTopicData(TOPIC, [partition])],
        nodes=voter_nodes(view.voters),
    )
