"""Any history of appends, fetches, ISR changes and clean elections keeps what was acknowledged.

Three replicas of one partition in memory, and a controller of a few lines. Images reach each
replica late and on their own; proposals are answered late; a leader that was replaced goes on
leading until it receives it.
"""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace
from partition_fixtures import (
    LAG_MS,
    HandClock,
    Machine,
    append,
    bytes_of,
    registration,
    values_in,
)

from ottla.config.generated import TopicConfig
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.replication.fetching.follower import Follower
from ottla.replication.fetching.follower_rules import DivergingEpoch, Range
from ottla.replication.partition_reads import Isolation, ReadRequest

pytestmark = pytest.mark.slow

NODES = (0, 1, 2)
NODE = st.sampled_from(NODES)


@dataclass
class Waiting:
    value: bytes
    offset: int


class Replication(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        clock = HandClock()
        self.clock = clock
        self.machines = [Machine(node_id, clock=clock) for node_id in NODES]
        config = TopicConfig(min_insync_replicas=2)
        self.partitions = [machine.host(config=config) for machine in self.machines]
        self.followers: list[Follower | None] = [None, None, None]
        self.truth = registration(leader=0, replicas=NODES)
        self.next_value = 0
        self.acknowledged: dict[int, bytes] = {}
        self.high_watermarks = [0, 0, 0]
        for node in NODES:
            self._deliver(node)

    def _deliver(self, node: int) -> None:
        partition = self.partitions[node]
        if partition.apply(self.truth) and not partition.is_leader:
            self.followers[node] = Follower(self.machines[node].fake_host, partition)

    def _commit(self, **changes) -> None:
        self.truth = replace(self.truth, partition_epoch=self.truth.partition_epoch + 1, **changes)

    # -- clients ---------------------------------------------------------------

    @rule(acks=st.sampled_from([1, -1]), is_stale=st.booleans(), count=st.integers(1, 3))
    def write(self, acks: int, is_stale: bool, count: int) -> None:
        """Append to the leader, or to a replaced one that does not know it yet."""
        leading = [node for node in NODES if self.partitions[node].is_leader]
        node = next((n for n in leading if (n != self.truth.leader) == is_stale), None)
        if node is not None:
            for _ in range(count):
                self._write(node, acks)

    def _write(self, node: int, acks: int) -> None:
        partition = self.partitions[node]
        value = b"%d" % self.next_value
        self.next_value += 1
        try:
            appended = append(partition, value, required_acks=acks)
        except Fault:
            return
        if acks == -1:
            offset = appended.last_offset
            partition.when_replicated(
                offset + 1, lambda fault: self._acknowledged(offset, value, fault)
            )

    def _acknowledged(self, offset: int, value: bytes, fault: Fault | None) -> None:
        if fault is None:
            assert self.acknowledged.setdefault(offset, value) == value
            self._check_elected()

    # -- replicas --------------------------------------------------------------

    @rule(node=NODE)
    def fetch(self, node: int) -> None:
        self._fetch(node)

    @rule()
    def catch_up(self) -> None:
        for node in (*NODES, *NODES, *NODES):
            self._fetch(node)

    @rule(laggard=NODE)
    def fall_behind(self, laggard: int) -> None:
        """One follower does not fetch for so long that it must leave the ISR."""
        self.clock.pass_ms(LAG_MS + 1)
        for node in NODES * 3:
            if node != laggard:
                self._fetch(node)
        for partition in self.partitions:
            partition.shrink_isr()
        for node in NODES:
            if node != laggard:
                self._fetch(node)

    def _fetch(self, node: int) -> None:
        follower = self.followers[node]
        if follower is None or not follower.is_current:
            return
        leader, log = self.partitions[follower.partition.leader_id], follower.partition.log
        latest = log.epochs.latest_epoch
        want = ReadRequest(
            log.log_end_offset,
            1,  # one batch at a time, so that it takes several to catch up
            isolation=Isolation.LOG_END,
            current_leader_epoch=follower.epoch,
            last_fetched_epoch=-1 if latest is None else latest,
            replica_id=node,
        )
        try:
            found = leader.read(want)
            if found.diverging is not None:
                follower.cut(DivergingEpoch(*found.diverging))
                return
            leader.follower_fetched(
                node,
                want.offset,
                log_start=log.log_start_offset,
                leader_end=found.log_end_offset,
                broker_epoch=-1,
            )
        except Fault as fault:
            if fault.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                follower.reset(Range(leader.log.log_start_offset, leader.log.log_end_offset))
            return
        if found.slice.length:
            follower.append(bytes_of(found.slice), self.clock.now())
        follower.learn(found.high_watermark, found.log_start_offset)

    # -- the controller --------------------------------------------------------

    @rule(node=NODE)
    def deliver_image(self, node: int) -> None:
        self._deliver(node)

    @rule()
    def deliver_all(self) -> None:
        for node in NODES:
            self._deliver(node)

    @rule(is_lost=st.booleans())
    def answer_proposals(self, is_lost: bool) -> None:
        for node in NODES:
            self._answer(node, is_lost)

    @rule()
    def settle(self) -> None:
        """All replicas apply the latest image, and catch up."""
        for _ in range(3):
            self.deliver_all()
            self.catch_up()
            self.answer_proposals(is_lost=False)

    def _answer(self, node: int, is_lost: bool) -> None:
        partition = self.partitions[node]
        proposal = partition.proposal
        if proposal is None:
            return
        truth = self.truth
        if truth.leader_epoch != proposal.leader_epoch:
            partition.isr_refused(proposal, ErrorCode.FENCED_LEADER_EPOCH)
        elif truth.partition_epoch != proposal.partition_epoch:
            partition.isr_refused(proposal, ErrorCode.INVALID_UPDATE_VERSION)
        else:
            self._commit(isr=proposal.isr)
            if not is_lost:
                partition.isr_accepted(
                    proposal, proposal.isr, truth.leader_epoch, self.truth.partition_epoch
                )

    @precondition(lambda self: len(self.truth.isr) > 1)
    @rule(node=NODE, keeps=st.booleans(), is_notified=st.booleans())
    def elect(self, node: int, keeps: bool, is_notified: bool) -> None:
        """A clean election: of a member of the ISR. The old leader may fall out of it."""
        if node not in self.truth.isr or node == self.truth.leader:
            return
        gone = () if keeps else (self.truth.leader,)
        isr = tuple(each for each in self.truth.isr if each not in gone)
        self._commit(leader=node, leader_epoch=self.truth.leader_epoch + 1, isr=isr)
        if is_notified:
            self.deliver_all()

    # -- invariants --------------------------------------------------------

    def _check_elected(self) -> None:
        """Every electable replica has what was acknowledged."""
        for node in self.truth.isr:
            found = values_in(self.partitions[node].log)
            for offset, value in self.acknowledged.items():
                assert len(found) > offset and found[offset] == value, (node, offset)

    @invariant()
    def nothing_acknowledged_is_lost(self) -> None:
        self._check_elected()

    @invariant()
    def logs_agree_below_the_high_watermark(self) -> None:
        known = [values_in(p.log, p.log.high_watermark) for p in self.partitions]
        longest = max(known, key=len)
        for found in known:
            assert longest[: len(found)] == found

    @invariant()
    def the_high_watermark_never_falls(self) -> None:
        for node, partition in enumerate(self.partitions):
            assert partition.log.high_watermark >= self.high_watermarks[node]
            self.high_watermarks[node] = partition.log.high_watermark


Replication.TestCase.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
TestReplication = Replication.TestCase
