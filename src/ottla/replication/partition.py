"""One hosted replica of a partition: its log, and its role in the image.

Everything is synchronous: an append, a follower's fetch or a new image is processed as a whole, and
waiters are notified before the call returns. Times are monotonic unless stated otherwise.

    leader     appends for clients, answers all fetches, tracks the followers' progress, advances
               the high watermark, proposes ISR changes
    follower   appends what its leader sends (`follower.py`), answers consumers
    offline    its directory has failed: everything raises `StorageFailed`

Invariants: an append is acknowledged only in the leader epoch it was made in; the high watermark
never falls while this node leads; both hold across any order of images.
"""

from collections.abc import Callable
from typing import Final

from ottla.config.generated import TopicConfig
from ottla.metadata.topics import PartitionRegistration
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import (
    CorruptBatch,
    Fault,
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    PolicyViolated,
    ReplicaDamaged,
    StorageFailed,
    UnknownLeaderEpoch,
    UnsupportedMagic,
)
from ottla.protocol.types import (
    NO_EPOCH,
    NO_LEADER,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    TopicPartition,
    Uuid,
)
from ottla.replication.leading.appending import ALL, AppendingPartition
from ottla.replication.leading.follower_progress import FollowerProgress
from ottla.replication.leading.high_watermark import Lag
from ottla.replication.leading.isr_state import (
    AfterRefusal,
    Isr,
    LeaderIdentity,
    LeaderOffsets,
    Proposal,
)
from ottla.replication.leading.leadership import Leadership
from ottla.replication.leading.waiters import Done, OffsetWaiters, Unsubscribe, Wakers
from ottla.replication.partition_host import PartitionHost
from ottla.replication.partition_reads import CONSUMER, Isolation, ReadRequest, ReadResult
from ottla.storage.directory.log_dir import LogDirectory
from ottla.storage.log.batch_checks import Appended
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.read import CorruptStoredBatch, Slice, TimestampedOffset

HIGH_WATERMARK_OFFSET: Final = Offset(-1)
"""DeleteRecords: everything below the high watermark."""


class Partition(AppendingPartition):
    """A replica hosted here. Created and kept in step with the image by `replicas.py`."""

    directory: LogDirectory
    log: Log
    config: TopicConfig
    leader_epoch: LeaderEpoch
    is_leader: bool
    _host: PartitionHost
    _leading: Leadership
    _wakers: Wakers
    _replicated: OffsetWaiters

    def __init__(
        self,
        name: TopicPartition,
        topic_id: Uuid,
        directory: LogDirectory,
        log: Log,
        config: TopicConfig,
        host: PartitionHost,
    ) -> None:
        self.name = name
        self.topic, self.index = name
        self.topic_id = topic_id
        self.directory = directory
        self.log = log
        self.config = config
        self._host = host
        self._node_id = host.node_id
        self.registration: PartitionRegistration | None = None
        self.leader_id: NodeId = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.is_leader = False
        # It lost records, and neither leads nor follows until it has asked the other replicas.
        self.is_held = False
        self.offline: StorageFailed | None = None
        self.is_closed = False
        self._leading = Leadership(host.node_id)
        self._wakers = Wakers()
        self._replicated = OffsetWaiters()
        self._trimmed = OffsetWaiters()

    def __str__(self) -> str:
        return str(self.name)

    # -- state -------------------------------------------------------------------

    @property
    def isr(self) -> tuple[int, ...]:
        """The committed in-sync replicas, as far as known here."""
        return self._leading.isr.committed

    @property
    def proposal(self) -> Proposal | None:
        """The ISR proposed to the controller and not answered yet."""
        return self._leading.isr.proposal

    @property
    def followers(self) -> dict[int, FollowerProgress]:
        """The other replicas and their progress, while this node leads."""
        return self._leading.followers

    @property
    def low_watermark(self) -> Offset:
        """The smallest log start of the live replicas; on a leader."""
        return self._leading.low_watermark(self.log.log_start_offset, self._host.is_alive)

    def readable_end(self, isolation: Isolation) -> Offset:
        """Return the end of what such a reader may read."""
        if isolation is Isolation.HIGH_WATERMARK:
            return self.log.high_watermark
        if isolation is Isolation.LAST_STABLE:
            return self.log.last_stable_offset
        return self.log.log_end_offset

    # -- checks ------------------------------------------------------------------

    def check_online(self) -> None:
        """Raise while the directory is offline, or once the partition has left this node.

        Raises:
            StorageFailed, NotLeader
        """
        if self.is_closed:
            raise NotLeader(f"{self.name}: no longer hosted here")
        if self.offline is not None:
            raise StorageFailed(self.offline.directory, self.offline.reason)

    def check_leader(self) -> None:
        """Raise unless this node leads.

        Raises:
            NotLeader: another node leads, or none. StorageFailed: the directory is offline.
        """
        if not self.is_leader:
            self.check_online()
            raise NotLeader(f"{self.name}: node {self.leader_id} leads, not {self._node_id}")

    def check_leader_epoch(self, epoch: LeaderEpoch) -> None:
        """Compare the leader epoch of a request; -1 is not compared (KIP-320).

        Raises:
            FencedLeaderEpoch: the requester is behind. UnknownLeaderEpoch: this node is.
        """
        if epoch in (NO_EPOCH, self.leader_epoch):
            return
        text = f"{self.name}: leader epoch {epoch}, this node has {self.leader_epoch}"
        raise FencedLeaderEpoch(text) if epoch < self.leader_epoch else UnknownLeaderEpoch(text)

    # -- append ----------------------------------------------------------------

    def append(
        self,
        batch: bytearray | memoryview,
        *,
        now: Millis,
        required_acks: int = 1,
        from_client: bool = True,
        transaction_version: int = 0,
        expected_epoch: LeaderEpoch | None = None,
        may_have_gaps: bool = False,
    ) -> Appended:
        """Append as the leader; ``now`` is wall time. Wakes readers before it returns.

        ``expected_epoch`` is the leader epoch in which a coordinator decided what it appends.
        ``may_have_gaps``: records were removed from the batch, and their offsets stay unused.

        Raises:
            NotLeader, FencedLeaderEpoch, UnknownLeaderEpoch: another leader epoch.
            NotEnoughReplicas: acks=all with too small an ISR. Others from `Log.append_as_leader`.
            Nothing was written. StorageFailed: the directory is offline now.
        """
        self.check_leader()
        if expected_epoch is not None:
            self.check_leader_epoch(expected_epoch)
        if required_acks == ALL and self.is_under_min_isr:
            raise NotEnoughReplicas(
                f"{self.name}: in sync {self.isr}, "
                f"min.insync.replicas is {self.config.min_insync_replicas}"
            )
        try:
            appended = self.log.append_as_leader(
                batch,
                leader_epoch=self.leader_epoch,
                now=now,
                from_client=from_client,
                transaction_version=transaction_version,
                may_have_gaps=may_have_gaps,
            )
        except StorageFailed as fault:
            self._host.storage_failed(self.directory, fault.reason)
            raise
        if not appended.is_duplicate:
            self._appended()
        return appended

    def when_replicated(self, offset: Offset, done: Done) -> Unsubscribe:
        """Call ``done`` once everything below ``offset`` is replicated, maybe at once.

        ``offset`` is one after the last record. ``done`` receives None on success,
        NotEnoughReplicasAfterAppend if it is replicated to too few, and NotLeader or StorageFailed
        if this node can no longer know the outcome.
        """
        if self.is_leader and self.log.high_watermark < offset:
            return self._replicated.add(offset, done)
        try:
            self.check_leader()
        except (NotLeader, StorageFailed) as fault:
            done(fault)
        else:
            done(self._too_few_after_append())
        return _nothing

    def _too_few_after_append(self) -> NotEnoughReplicasAfterAppend | None:
        if self._leading.is_enough(self.config.min_insync_replicas):
            return None
        return NotEnoughReplicasAfterAppend(f"{self.name}: in sync {self.isr}")

    def on_appended(self, wake: Callable[[], None]) -> Unsubscribe:
        """Call ``wake`` whenever a reader may see more, or will never see more here."""
        return self._wakers.add(wake)

    def wake_readers(self) -> None:
        """Wake the readers that wait for growth."""
        self._wakers.wake()

    def _lag(self) -> Lag:
        return Lag(self._host.clock.monotonic(), self._host.lag_ms_max)

    # -- read ------------------------------------------------------------------

    def read(self, want: ReadRequest) -> ReadResult:
        """Locate what a fetch requested. `follower_fetched` records a follower's progress.

        Raises:
            OffsetOutOfRange: below the log's start or above its end, or of an epoch unknown to
                this log. NotLeader, FencedLeaderEpoch, UnknownLeaderEpoch.
            StorageFailed, CorruptBatch: it cannot be read.
        """
        self.check_leader_epoch(want.current_leader_epoch)
        if not self.is_leader and not want.allow_follower:
            self.check_leader()
        self.check_online()
        if want.replica_id != CONSUMER:
            self.check_follower(want.replica_id, want.current_leader_epoch)
        log = self.log
        stood = (
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            log.log_end_offset,
        )
        if want.last_fetched_epoch != NO_EPOCH:
            diverging = self._diverging(want)
            if diverging is not None:
                return ReadResult(self._no_batches(want.offset), *stood, diverging=diverging)
        upto = self.readable_end(want.isolation)
        try:
            found = log.read(want.offset, want.bytes_max, upto=upto, minimum_one=want.minimum_one)
            if want.isolation is not Isolation.LAST_STABLE:
                return ReadResult(found, *stood)
            aborted = log.collect_aborted(found.base_offset, upto) if found.length else []
            return ReadResult(found, *stood, aborted)
        except StorageFailed as fault:
            self._host.storage_failed(self.directory, fault.reason)
            raise
        except (CorruptBatch, UnsupportedMagic) as fault:
            raise self.damaged(want.offset, fault) from fault

    def damaged(self, offset: Offset, fault: Fault) -> Fault:
        """Have an unreadable batch checked; return the fault for the reader.

        Retriable while another in-sync replica can take over, otherwise final.
        """
        at = fault.offset if isinstance(fault, CorruptStoredBatch) else offset
        self._host.suspect(self, Offset(at))
        if not self.is_leader or any(each != self._node_id for each in self.isr):
            return ReplicaDamaged(f"{self.name}: {fault}")
        return CorruptBatch(f"{self.name}: {fault}")

    def _no_batches(self, offset: Offset) -> Slice:
        return Slice(self.log.segments[-1].file, 0, 0, offset)

    def _diverging(self, want: ReadRequest) -> tuple[LeaderEpoch, Offset] | None:
        """Compare the reader's history with the log's (KIP-595); None when they agree."""
        epoch, end = self.log.epochs.end_offset_for(
            want.last_fetched_epoch, self.log.log_end_offset
        )
        if end < 0 or epoch < 0 or want.offset < self.log.log_start_offset:
            raise OffsetOutOfRange(
                f"{self.name}: offset {want.offset} of epoch {want.last_fetched_epoch}"
            )
        if epoch < want.last_fetched_epoch or end < want.offset:
            return epoch, end
        return None

    def epoch_end(
        self, current_epoch: LeaderEpoch, epoch: LeaderEpoch, *, allow_follower: bool = False
    ) -> tuple[LeaderEpoch, Offset]:
        """Return the largest known epoch at or below ``epoch``, and where it ends; -1 for neither.

        Raises:
            NotLeader, FencedLeaderEpoch, UnknownLeaderEpoch, StorageFailed
        """
        self.check_leader_epoch(current_epoch)
        if not allow_follower:
            self.check_leader()
        self.check_online()
        return self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)

    def check_offset_available(self) -> None:
        """Raise while this leader does not know the newest offset yet (KIP-207).

        Raises:
            OffsetNotAvailable: the high watermark is still below the start of its leader epoch.
        """
        start = self._leading.epoch_start
        if start is not None and self.log.high_watermark < start:
            raise OffsetNotAvailable(f"{self.name}: {self.log.high_watermark}")

    # -- the front of the log --------------------------------------------------

    def delete_records(self, offset: Offset) -> Offset:
        """Make ``offset`` the first readable one, -1 the high watermark; return the offset.

        Raises:
            NotLeader, PolicyViolated, StorageFailed. OffsetOutOfRange: above the high watermark.
        """
        self.check_leader()
        if not self.log.config.is_deleted:
            raise PolicyViolated(f"{self.name}: cleanup.policy is {self.config.cleanup_policy}")
        wanted = self.log.high_watermark if offset == HIGH_WATERMARK_OFFSET else offset
        if wanted < 0:
            raise OffsetOutOfRange(f"{self.name}: {offset}")
        try:
            self.log.advance_log_start(wanted)
        except StorageFailed as fault:
            self._host.storage_failed(self.directory, fault.reason)
            raise
        self._wakers.wake()
        return wanted

    def find_timestamp(self, timestamp: Millis | None) -> TimestampedOffset | None:
        """Find the first record at or after a time, or for None the one with the largest time.

        Raises:
            StorageFailed, CorruptBatch: it cannot be read.
        """
        self.check_online()
        try:
            if timestamp is None:
                return self.log.max_timestamp()
            return self.log.offset_for_timestamp(timestamp)
        except StorageFailed as fault:
            self._host.storage_failed(self.directory, fault.reason)
            raise
        except (CorruptBatch, UnsupportedMagic) as fault:
            raise self.damaged(self.log.log_start_offset, fault) from fault

    def when_deleted(self, offset: Offset, done: Done) -> Unsubscribe:
        """Call ``done`` once no live replica starts below ``offset``, maybe at once."""
        if self.is_leader and self.low_watermark < offset:
            return self._trimmed.add(offset, done)
        try:
            self.check_leader()
        except (NotLeader, StorageFailed) as fault:
            done(fault)
        else:
            done(None)
        return _nothing

    def log_trimmed(self) -> None:
        """Notify readers, and waiters for a deletion, that the log start has advanced."""
        self._log_start_moved()
        self._wakers.wake()

    def _log_start_moved(self) -> None:
        """Notify waiters for a deletion that the log start of a replica has advanced."""
        if self.is_leader and self._trimmed:
            self._trimmed.reached(self.low_watermark)

    # -- followers -------------------------------------------------------------

    def check_follower(self, replica_id: int, current_epoch: LeaderEpoch = NO_EPOCH) -> None:
        """Reject a fetch of a broker that is not a replica, as far as known here.

        Raises:
            UnknownLeaderEpoch: it names our leader epoch, so it knows more than we do.
            NotLeader: it names no epoch, so it is unknown which side is behind.
        """
        if replica_id in self._leading.followers:
            return
        text = f"{self.name}: broker {replica_id} is not among {self.replicas}"
        raise NotLeader(text) if current_epoch == NO_EPOCH else UnknownLeaderEpoch(text)

    def follower_fetched(
        self,
        replica_id: int,
        offset: Offset,
        *,
        log_start: Offset,
        leader_end: Offset | None = None,
        broker_epoch: int = -1,
    ) -> None:
        """Record a follower's fetch; may advance the high watermark and propose an ISR change.

        ``leader_end`` is the log end when the fetch was answered, by default now.

        Raises:
            NotLeader: not a replica, or an outdated registration of its broker (KIP-903).
        """
        self.check_leader()
        self.check_follower(replica_id)
        follower = self._leading.followers[replica_id]
        if broker_epoch >= 0 and (follower.broker_epoch or -1) > broker_epoch:
            raise NotLeader(f"{self.name}: broker {replica_id} has a newer epoch")
        follower.broker_epoch = broker_epoch
        end = self.log.log_end_offset if leader_end is None else leader_end
        before, before_start = follower.log_end, follower.log_start
        if offset == before and offset < follower.leader_end_at_fetch:
            self._host.suspect(self, offset)  # it was sent batches that it did not append
        follower.fetched(offset, log_start, end, self._host.clock.monotonic())
        self._consider_joining(replica_id)
        if follower.log_end != before:
            self._advance()
        if follower.log_start != before_start:
            self._log_start_moved()

    def follower_rested(self, replica_id: int, since: Millis) -> None:
        """Record that a follower fetched from the log's end, last at ``since``.

        Until something is appended such fetches carry no news, and are not recorded one by one.
        """
        follower = self._leading.followers.get(replica_id)
        if follower is not None and replica_id in self.isr:
            follower.rested(since)

    def _consider_joining(self, broker: int) -> None:
        log, start = self.log, self._leading.epoch_start
        assert start is not None, "a leader has begun its leader epoch"
        leader = LeaderOffsets(log.high_watermark, log.log_end_offset, start)
        if self._leading.is_joining(broker, leader, self._is_eligible):
            self._propose((*self.isr, broker))

    def _is_eligible(self, broker: int, broker_epoch: int | None) -> bool:
        """Whether a follower may be in the ISR: its broker is eligible, its directory online."""
        at = None if self.registration is None else self.registration.directory(broker)
        if at is not None and not self._host.is_online(broker, at):
            return False
        return self._host.is_eligible(broker, broker_epoch)

    def brokers_changed(self) -> None:
        """Advance the high watermark: a replica it waited for may have left for good.

        A broker whose directory failed leaves the ISR first and is fenced later. If all producers
        wait by then, nothing else would ever advance the high watermark.
        """
        if self.is_leader:
            self._advance()

    def shrink_isr(self) -> tuple[int, ...]:
        """Propose an ISR without lagging replicas; return those."""
        if not self.is_leader or len(self.isr) == 1:
            return ()
        gone = self._leading.lagging(self.log.log_end_offset, self._lag())
        if gone:
            self._propose(tuple(each for each in self.isr if each not in gone))
        return gone

    def _propose(self, isr: tuple[int, ...]) -> None:
        identity = LeaderIdentity(
            self._node_id, self._host.broker_epoch, self.leader_epoch, self.partition_epoch
        )
        self._host.propose(self, self._leading.propose(isr, identity))

    def isr_accepted(
        self, proposal: Proposal, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int
    ) -> None:
        """Process the controller's acceptance of ``proposal``, unless the image was faster."""
        if not self._leading.is_current(proposal):
            return
        if leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return
        self._leading.isr = Isr(isr)
        self.partition_epoch = partition_epoch
        self._advance()

    def isr_refused(self, proposal: Proposal, error: ErrorCode) -> bool:
        """Process the controller's rejection; True when the proposal must be sent again."""
        if not self._leading.is_current(proposal):
            return False
        return self._leading.refuse(error) is AfterRefusal.RETRY

    # -- the image -------------------------------------------------------------

    def configure(self, topic: TopicConfig, log: LogConfig) -> None:
        """Apply new settings."""
        self.config = topic
        self.log.configure(log)
        if self.is_leader:
            self._advance()  # min.insync.replicas may be lower now

    def apply(self, registration: PartitionRegistration) -> bool:
        """Apply the image's registration of this partition; True when the leader epoch is new.

        A partition epoch older than the known one changes nothing: the controller's answer to a
        proposal may be faster than the image.
        """
        if registration.partition_epoch < self.partition_epoch or self.offline is not None:
            return False
        is_new_epoch = registration.leader_epoch > self.leader_epoch
        was_leader = self.is_leader
        self.registration = registration
        self.replicas = registration.replicas
        self.partition_epoch = registration.partition_epoch
        self.leader_id = NodeId(registration.leader)
        if self.is_held:
            self._leading.isr = Isr(registration.isr)
            return False  # the leader epoch begins once it is released
        if registration.leader == self._node_id:
            self._lead(registration, is_new_epoch, was_leader)
        else:
            self.leader_epoch = LeaderEpoch(registration.leader_epoch)
            self._leading.isr = Isr(registration.isr)
            self._stop_leading()
        has_moved = self.is_leader and self._advance()
        if was_leader and not self.is_leader:
            # Whether the new leader has what was appended is unknown here.
            self._give_up(NotLeader(f"{self.name}: node {self.leader_id} leads now"))
        if has_moved or is_new_epoch or was_leader != self.is_leader:
            self._wakers.wake()
        return is_new_epoch

    def _lead(
        self, registration: PartitionRegistration, is_new_epoch: bool, was_leader: bool
    ) -> None:
        self._leading.assign(registration.replicas, registration.isr)
        if is_new_epoch:
            self._begin_leader_epoch(LeaderEpoch(registration.leader_epoch), was_leader)
        self.is_leader = self.offline is None  # writing the epoch may have failed

    def _begin_leader_epoch(self, epoch: LeaderEpoch, was_leader: bool) -> None:
        self.leader_epoch = epoch
        try:
            # Even without a record of it: a follower with records of a later epoch than any of
            # ours must learn that they are not part of the log.
            self.log.start_epoch(epoch)
        except StorageFailed as fault:
            self._host.storage_failed(self.directory, fault.reason)
            return
        now = self._host.clock.monotonic()
        self._leading.begin(self.log.log_end_offset, now, is_new_leader=not was_leader)

    def _stop_leading(self) -> None:
        self.is_leader = False
        self._leading.end()

    def _give_up(self, fault: NotLeader | StorageFailed) -> None:
        self._replicated.give_up(fault)
        self._trimmed.give_up(fault)

    def go_offline(self, fault: StorageFailed) -> None:
        """Stop everything: the directory has failed, or the partition leaves this node."""
        if self.offline is not None:
            return
        self.offline = fault
        self._stop_leading()
        self._give_up(fault)
        self._wakers.wake()

    def close(self) -> None:
        """Notify waiters that the partition is no longer here. Its log is not used any more."""
        self.is_closed = True
        self._stop_leading()
        self.leader_id = NO_LEADER
        self._give_up(NotLeader(f"{self.name}: no longer hosted here"))
        self._wakers.wake()


def _nothing() -> None:
    """Do nothing: there is no subscription to cancel."""
