"""The leader's state of one partition besides its log: followers, ISR, start of the leader epoch.

Pure. On a follower it has only the committed ISR and no followers.
"""

from collections.abc import Callable

from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import Millis, NodeId, Offset
from ottla.replication.leading.follower_progress import FollowerProgress
from ottla.replication.leading.high_watermark import Lag, decide_high_watermark, is_under_min_isr
from ottla.replication.leading.isr_state import (
    AfterRefusal,
    Eligible,
    Isr,
    LeaderIdentity,
    LeaderOffsets,
    Proposal,
    decide_after_refusal,
    lagging,
    may_join,
    propose,
)


class Leadership:
    """The leader's state of one partition. ``epoch_start`` is None while another node leads."""

    __slots__ = ("_node_id", "epoch_start", "followers", "isr")

    def __init__(self, node_id: NodeId) -> None:
        self._node_id = node_id
        self.isr = Isr()
        self.followers: dict[int, FollowerProgress] = {}
        self.epoch_start: Offset | None = None

    # -- the image -------------------------------------------------------------

    def assign(self, replicas: tuple[int, ...], isr: tuple[int, ...]) -> None:
        """Lead these replicas; the progress of those that stay is kept."""
        known = self.followers
        self.followers = {
            broker: known.get(broker) or FollowerProgress()
            for broker in replicas
            if broker != self._node_id
        }
        self.isr = Isr(isr)

    def begin(self, log_end: Offset, now: Millis, *, is_new_leader: bool) -> None:
        """Begin a leader epoch at the log's end, after `assign`."""
        self.epoch_start = log_end
        for broker, follower in self.followers.items():
            is_in_sync = broker in self.isr.committed
            follower.begin_epoch(log_end, now, is_new_leader=is_new_leader, is_in_sync=is_in_sync)

    def end(self) -> None:
        """Stop leading."""
        self.epoch_start = None
        self.followers = {}
        self.isr = Isr(self.isr.committed)

    # -- watermarks --------------------------------------------------------------

    def is_under_min_isr(self, min_insync_replicas: int) -> bool:
        """Whether too few replicas are in sync for acks=all."""
        return is_under_min_isr(self.isr, min_insync_replicas, len(self.followers) + 1)

    def is_enough(self, min_insync_replicas: int) -> bool:
        """Whether what is replicated now is on enough replicas to be acknowledged."""
        needed = min(min_insync_replicas, len(self.followers) + 1)
        return len(self.isr.maximal) >= needed

    def high_watermark(self, log_end: Offset, lag: Lag, is_eligible: Eligible) -> Offset:
        """Return the smallest log end of the replicas that count."""
        return decide_high_watermark(log_end, self.isr, self.followers, lag, is_eligible)

    def low_watermark(self, log_start: Offset, is_alive: Callable[[int], bool]) -> Offset:
        """Return the smallest log start of the live replicas."""
        for broker, follower in self.followers.items():
            if follower.log_start < log_start and is_alive(broker):
                log_start = follower.log_start
        return log_start

    # -- the ISR ---------------------------------------------------------------

    def is_joining(self, broker: int, leader: LeaderOffsets, is_eligible: Eligible) -> bool:
        """Whether a follower that has just fetched is to be proposed for the ISR."""
        if self.isr.proposal is not None or broker in self.isr.committed:
            return False
        follower = self.followers[broker]
        return may_join(follower, leader) and is_eligible(broker, follower.broker_epoch)

    def lagging(self, log_end: Offset, lag: Lag) -> tuple[int, ...]:
        """Return the replicas to be proposed for removal from the ISR."""
        return lagging(self.isr, self.followers, log_end, lag.now, lag.ms_max)

    def propose(self, isr: tuple[int, ...], identity: LeaderIdentity) -> Proposal:
        """Create a proposal; it is in flight from now on."""
        proposal = propose(isr, identity, self.followers)
        self.isr = Isr(self.isr.committed, proposal)
        return proposal

    def is_current(self, proposal: Proposal) -> bool:
        """Whether an answer to ``proposal`` still matters."""
        return self.isr.proposal is proposal

    def refuse(self, error: ErrorCode) -> AfterRefusal:
        """Process the controller's rejection of the proposal in flight."""
        after = decide_after_refusal(error)
        if after is AfterRefusal.ROLL_BACK:
            self.isr = Isr(self.isr.committed)
        return after
