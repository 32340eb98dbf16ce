"""The in-sync replicas of a led partition: committed, and proposed to the controller.

Pure (KIP-497, KIP-903). One proposal is under way at a time:

    committed --propose--> committed + proposal --accepted--> the new set is committed
                                                --refused---> the old one is, or nobody knows

While nobody knows, the larger of both sets counts for the high watermark (``maximal``): what
is acknowledged then is on every replica that either set could elect. And the smaller, committed
one counts for ``min.insync.replicas``.
"""

import enum
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset
from ottla.replication.follower_progress import NO_BROKER_EPOCH, FollowerProgress


class Proposal(NamedTuple):
    """An ISR that the controller is asked for, as of ``partition_epoch``.

    ``broker_epochs`` stands parallel to ``isr`` and is -1 where a broker's is not known.
    """

    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    leader_epoch: LeaderEpoch
    partition_epoch: int


class Isr(NamedTuple):
    """Who is in sync. ``proposal`` is None when nothing is under way."""

    committed: tuple[int, ...] = ()
    proposal: Proposal | None = None

    @property
    def maximal(self) -> tuple[int, ...]:
        """Everybody who is in the ISR, or may be by now."""
        if self.proposal is None:
            return self.committed
        more = tuple(each for each in self.proposal.isr if each not in self.committed)
        return self.committed + more


class LeaderOffsets(NamedTuple):
    """Where the leader stands: its high watermark, its end, and where its reign began."""

    high_watermark: Offset
    log_end: Offset
    epoch_start: Offset


class LeaderIdentity(NamedTuple):
    """Who leads since when, for a proposal."""

    node_id: NodeId
    broker_epoch: int
    leader_epoch: LeaderEpoch
    partition_epoch: int


def may_join(follower: FollowerProgress, leader: LeaderOffsets) -> bool:
    """Say whether a follower has enough to be in sync.

    All that is committed, and something of this leader's reign: between the high watermark and
    the start of the reign there may be records that are committed without the leader knowing.
    """
    return follower.log_end >= max(leader.high_watermark, leader.epoch_start)


def lagging(
    isr: Isr,
    followers: Mapping[int, FollowerProgress],
    leader_end: Offset,
    now: Millis,
    lag_ms_max: int,
) -> tuple[int, ...]:
    """Return who is in the ISR and no longer caught up; nobody while a proposal is under way."""
    if isr.proposal is not None:
        return ()
    return tuple(
        broker
        for broker in isr.committed
        if broker in followers and not followers[broker].is_caught_up(leader_end, now, lag_ms_max)
    )


def propose(
    isr: tuple[int, ...], reign: LeaderIdentity, followers: Mapping[int, FollowerProgress]
) -> Proposal:
    """Make a proposal, each member with the broker epoch by which it fetches."""

    def epoch_of(broker: int) -> int:
        if broker == reign.node_id:
            return reign.broker_epoch
        follower = followers.get(broker)
        known = None if follower is None else follower.broker_epoch
        # One that has not fetched yet is in the ISR by the controller's word: if it fell out
        # of it meanwhile, the partition epoch is another one and the proposal is refused.
        return NO_BROKER_EPOCH if known is None else known

    return Proposal(isr, tuple(map(epoch_of, isr)), reign.leader_epoch, reign.partition_epoch)


class AfterRefusal(enum.Enum):
    """What to do with a proposal that was not accepted."""

    ROLL_BACK = "it was not carried out: the committed set counts again"
    STAY = "nobody knows, or this leader is over: stay as we are until the image says more"
    RETRY = "ask again"


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
    """Decide by the controller's answer for one partition.

    Only two codes promise that no controller, past or future, has carried the proposal out.
    """
    if error in _ROLL_BACK:
        return AfterRefusal.ROLL_BACK
    return AfterRefusal.STAY if error in _STAY else AfterRefusal.RETRY


# Whether a broker may be in an ISR, by its id and the epoch it fetches by.
Eligible = Callable[[int, int | None], bool]
