"""The in-sync replicas of a led partition: committed, and proposed to the controller.

Pure (KIP-497, KIP-903). At most one proposal is in flight:

    committed --propose--> committed + proposal --accepted--> the new set is committed
                                                --rejected--> the old one is, or it is unknown

While it is unknown, the larger of both sets counts for the high watermark (``maximal``): what is
acknowledged then is on every replica that either set could elect. The smaller, committed set
counts for ``min.insync.replicas``.
"""

import enum
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset
from ottla.replication.leading.follower_progress import NO_BROKER_EPOCH, FollowerProgress


class Proposal(NamedTuple):
    """An ISR proposed to the controller, as of ``partition_epoch``.

    ``broker_epochs`` is parallel to ``isr``, with -1 where a broker's epoch is not known.
    """

    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    leader_epoch: LeaderEpoch
    partition_epoch: int


class Isr(NamedTuple):
    """The in-sync replicas. ``proposal`` is None when none is in flight."""

    committed: tuple[int, ...] = ()
    proposal: Proposal | None = None

    @property
    def maximal(self) -> tuple[int, ...]:
        """All replicas that are in the ISR, or may be by now."""
        if self.proposal is None:
            return self.committed
        more = tuple(each for each in self.proposal.isr if each not in self.committed)
        return self.committed + more


class LeaderOffsets(NamedTuple):
    """The leader's high watermark, log end, and the start of its leader epoch."""

    high_watermark: Offset
    log_end: Offset
    epoch_start: Offset


class LeaderIdentity(NamedTuple):
    """The leader of a partition and its epochs, for a proposal."""

    node_id: NodeId
    broker_epoch: int
    leader_epoch: LeaderEpoch
    partition_epoch: int


def may_join(follower: FollowerProgress, leader: LeaderOffsets) -> bool:
    """Whether a follower has enough to be in sync.

    It needs all that is committed, and to reach the start of this leader epoch: between the high
    watermark and that start there may be records that are committed without the leader knowing.
    """
    return follower.log_end >= max(leader.high_watermark, leader.epoch_start)


def lagging(
    isr: Isr,
    followers: Mapping[int, FollowerProgress],
    leader_end: Offset,
    now: Millis,
    lag_ms_max: int,
) -> tuple[int, ...]:
    """Return the members of the ISR that lag; none while a proposal is in flight."""
    if isr.proposal is not None:
        return ()
    return tuple(
        broker
        for broker in isr.committed
        if broker in followers and not followers[broker].is_caught_up(leader_end, now, lag_ms_max)
    )


def propose(
    isr: tuple[int, ...], identity: LeaderIdentity, followers: Mapping[int, FollowerProgress]
) -> Proposal:
    """Create a proposal, with the broker epoch of each member's fetches."""

    def epoch_of(broker: int) -> int:
        if broker == identity.node_id:
            return identity.broker_epoch
        follower = followers.get(broker)
        known = None if follower is None else follower.broker_epoch
        # A member that has not fetched yet is in the ISR by the controller's decision: if it left
        # meanwhile, the partition epoch has changed and the proposal is rejected.
        return NO_BROKER_EPOCH if known is None else known

    return Proposal(isr, tuple(map(epoch_of, isr)), identity.leader_epoch, identity.partition_epoch)


class AfterRefusal(enum.Enum):
    """What to do with a proposal that was not accepted."""

    ROLL_BACK = "it was not carried out: the committed set counts again"
    STAY = "unknown, or this leadership is over: keep the state until the next image"
    RETRY = "send it again"


_ROLL_BACK: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
_STAY: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


def decide_after_refusal(error: ErrorCode) -> AfterRefusal:
    """Decide by the controller's error for one partition.

    Only two codes guarantee that no controller, past or future, has carried the proposal out.
    """
    if error in _ROLL_BACK:
        return AfterRefusal.ROLL_BACK
    return AfterRefusal.STAY if error in _STAY else AfterRefusal.RETRY


# Whether a broker may be in an ISR, by its id and the epoch of its fetches.
Eligible = Callable[[int, int | None], bool]
