"""Invariants of every partition after every decision of random histories of a small cluster."""

from controller_cluster import ControllerCluster, directory
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ottla.controller.broker_liveness import HeartbeatContext
from ottla.controller.brokers import decide_unregister_broker
from ottla.controller.decision import Decision
from ottla.controller.elect_leaders import decide_elect_leaders
from ottla.controller.reassignments import decide_alter_reassignments
from ottla.controller.rebalance import decide_rebalance
from ottla.controller.replica_dirs import decide_assign_replicas
from ottla.metadata.image import Image
from ottla.metadata.topics import LeaderRecoveryState, PartitionRegistration
from ottla.protocol.internal.metadata_topics import PartitionChangeRecord
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.types import Offset, TopicIdPartition

BROKERS = 4
brokers = st.integers(0, BROKERS - 1)
log_states = st.tuples(st.integers(-1, 2), st.integers(0, 3))
replicas = st.lists(brokers, min_size=1, max_size=3, unique=True)
places = st.sampled_from([("t", 0), ("t", 1), ("u", 0)])


class Watched(ControllerCluster):
    """A cluster that checks the result of every decision."""

    def take(self, decision: Decision):
        before = self.image
        reply = super().take(decision)
        counts: dict[TopicIdPartition, int] = {}
        for record in decision.records:
            if isinstance(record.message, PartitionChangeRecord):
                at = TopicIdPartition(record.message.topic_id, record.message.partition_id)
                counts[at] = counts.get(at, 0) + 1
        for topic_id, topic in before.topics.by_id.items():
            for partition_id, old in topic.partitions.items():
                new = self.image.topics.by_id[topic_id].partitions[partition_id]
                check_change(old, new, counts.get(TopicIdPartition(topic_id, partition_id), 0))
        for topic in self.image.topics.by_id.values():
            for partition in topic.partitions.values():
                check_state(self.image, partition)
        return reply


def check_change(old: PartitionRegistration, new: PartitionRegistration, records: int) -> None:
    assert records <= 1, "one decision changes a partition once"
    assert new.partition_epoch == old.partition_epoch + records
    unchanged = replace_epoch(old, new.partition_epoch)
    assert (unchanged == new) == (records == 0), "no record without a change"
    must_rise = new.leader != old.leader or not set(old.replicas) <= set(new.replicas)
    assert new.leader_epoch == old.leader_epoch + must_rise


def replace_epoch(partition: PartitionRegistration, epoch: int) -> PartitionRegistration:
    fields = {name: getattr(partition, name) for name in partition.__struct_fields__}
    return PartitionRegistration(**{**fields, "partition_epoch": epoch})


def check_state(image: Image, partition: PartitionRegistration) -> None:
    isr, elr = set(partition.isr), set(partition.elr)
    assert len(isr) == len(partition.isr) and isr <= set(partition.replicas)
    assert not isr & elr and elr <= set(partition.replicas)
    assert len(set(partition.replicas)) == len(partition.replicas) == len(partition.directories)
    if partition.leader == -1:
        for replica in partition.isr or partition.elr:
            assert not may_lead(image, partition, replica), "a good leader is left aside"
    else:
        assert partition.leader in isr
        assert all(image.cluster.is_active(replica) for replica in isr)
        assert partition.last_known_elr == ()
    if partition.leader_recovery_state is LeaderRecoveryState.RECOVERING:
        assert len(isr) <= 1
    assert set(partition.adding_replicas) <= set(partition.replicas)
    assert set(partition.removing_replicas) <= set(partition.replicas)


def may_lead(image: Image, partition: PartitionRegistration, replica: int) -> bool:
    broker = image.cluster.brokers.get(replica)
    if broker is None or not broker.is_active():
        return False
    return broker.is_online(partition.directories[partition.replicas.index(replica)])


class Cluster(RuleBasedStateMachine):
    """Brokers start and stop, leaders report, operators make changes."""

    elr = False

    @initialize(one=replicas, other=replicas, min_isr=st.sampled_from(["1", "2"]))
    def begin(self, one: list[int], other: list[int], min_isr: str) -> None:
        self.cluster = Watched(elr=self.elr)
        self.lives = dict.fromkeys(range(BROKERS), 0)
        for broker_id in range(BROKERS):
            self.cluster.start(broker_id, directories=2)
        configs = {"min.insync.replicas": min_isr}
        self.cluster.create("t", one, one[::-1], configs=configs)
        self.cluster.create("u", other, configs=configs)
        self.goals = {
            ("t", 0): tuple(one),
            ("t", 1): tuple(one[::-1]),
            ("u", 0): tuple(other),
        }

    def teardown(self) -> None:
        for (name, partition_id), goal in getattr(self, "goals", {}).items():
            partition = self.cluster.partition(name, partition_id)
            removing = partition.removing_replicas
            assert tuple(r for r in partition.replicas if r not in removing) == goal
            if not partition.is_reassigning():
                assert partition.replicas == goal

    def is_registered(self, broker_id: int) -> bool:
        return broker_id in self.cluster.image.cluster.brokers

    # -- brokers -----------------------------------------------------------------------------

    @rule(broker_id=brokers, is_clean=st.booleans())
    def restart(self, broker_id: int, is_clean: bool) -> None:
        self.lives[broker_id] += 1
        epoch = self.cluster.image.cluster.broker_epoch(broker_id) if is_clean else -1
        number = self.lives[broker_id]
        self.cluster.register(broker_id, number, directories=2, previous_broker_epoch=epoch)

    @rule(
        broker_id=brokers,
        want_fence=st.sampled_from([False, False, True]),
        want_shut_down=st.sampled_from([False, False, True]),
        is_known=st.booleans(),
        failed=st.lists(st.integers(0, 1), max_size=1),
    )
    def heartbeat(
        self,
        broker_id: int,
        want_fence: bool,
        want_shut_down: bool,
        is_known: bool,
        failed: list[int],
    ) -> None:
        if not self.is_registered(broker_id):
            return
        broker = self.cluster.image.cluster.brokers[broker_id]
        offline = [directory(broker_id, number) for number in failed]
        if not set(broker.log_dirs) - set(offline):
            # A broker that has lost all of its directories stops; no record can say that it lives
            # without any, so that until it is fenced it would seem able to lead.
            self.die(broker_id)
            return
        leaving = broker.in_controlled_shutdown
        context = (
            HeartbeatContext(Offset(0), Offset(0)) if leaving and is_known else HeartbeatContext()
        )
        self.cluster.heartbeat(
            broker_id,
            context,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
            offline_log_dirs=offline,
        )

    @rule(broker_id=brokers)
    def unfence(self, broker_id: int) -> None:
        if self.is_registered(broker_id):
            self.cluster.heartbeat(broker_id)

    @rule(broker_id=brokers)
    def die(self, broker_id: int) -> None:
        if self.is_registered(broker_id):
            self.cluster.kill(broker_id)

    @rule(broker_id=brokers)
    def unregister(self, broker_id: int) -> None:
        cluster = self.cluster
        request = UnregisterBrokerRequest(broker_id)
        cluster.take(decide_unregister_broker(cluster.image, request, cluster.settings))

    @rule(broker_id=brokers, at=places, number=st.integers(0, 1))
    def assign(self, broker_id: int, at: tuple[str, int], number: int) -> None:
        cluster = self.cluster
        topics = [RequestTopicData(cluster.topic(at[0]).id, [RequestPartitionData(at[1])])]
        request = AssignReplicasToDirsRequest(
            broker_id=broker_id,
            broker_epoch=cluster.image.cluster.broker_epoch(broker_id),
            directories=[RequestDirectoryData(directory(broker_id, number), topics)],
        )
        cluster.take(decide_assign_replicas(cluster.image, request, cluster.settings))

    # -- partitions --------------------------------------------------------------------------

    @rule(at=places, data=st.data())
    def report_isr(self, at: tuple[str, int], data: st.DataObject) -> None:
        partition = self.cluster.partition(*at)
        if partition.leader == -1:
            return
        active = self.cluster.image.cluster.is_active
        others = [r for r in partition.replicas if r != partition.leader and active(r)]
        chosen = data.draw(st.lists(st.sampled_from(others), unique=True)) if others else []
        reply = self.cluster.isr(partition.leader, *chosen, name=at[0], partition_id=at[1])
        new = self.cluster.partition(*at)
        if reply.error_code == 0:
            assert (tuple(reply.isr), reply.partition_epoch) == (new.isr, new.partition_epoch)
        else:
            assert new.leader != partition.leader

    @rule(at=places, wanted=st.none() | replicas)
    def reassign(self, at: tuple[str, int], wanted: list[int] | None) -> None:
        cluster = self.cluster
        topics = [ReassignableTopic(at[0], [ReassignablePartition(at[1], wanted)])]
        request = AlterPartitionReassignmentsRequest(topics=topics)
        before = cluster.partition(*at)
        reply = cluster.take(decide_alter_reassignments(cluster.image, request, cluster.settings))
        if reply.responses[0].partitions[0].error_code:
            assert cluster.partition(*at) == before
            return
        if wanted is None:
            added = before.adding_replicas
            self.goals[at] = tuple(r for r in before.replicas if r not in added)
            assert not cluster.partition(*at).is_reassigning()
        else:
            self.goals[at] = tuple(wanted)
        self.teardown()

    @rule(kind=st.integers(0, 1))
    def elect(self, kind: int) -> None:
        cluster = self.cluster
        request = ElectLeadersRequest(election_type=kind, topic_partitions=None)
        cluster.take(decide_elect_leaders(cluster.image, request, cluster.settings))

    @rule(value=st.sampled_from(["true", None]))
    def allow_unclean(self, value: str | None) -> None:
        self.cluster.configure(2, "t", "unclean.leader.election.enable", value)

    @rule(ends=st.dictionaries(st.sampled_from(["b0", "b1", "b2", "b3"]), log_states))
    def recover(self, ends: dict[str, tuple[int, int]]) -> None:
        self.cluster.recover(**ends)

    @rule()
    def rebalance(self) -> None:
        self.cluster.take(decide_rebalance(self.cluster.state, 0, self.cluster.settings))

    @precondition(lambda self: self.elr)
    @rule(value=st.sampled_from(["1", "2", "3"]))
    def change_minimum(self, value: str) -> None:
        self.cluster.configure(2, "u", "min.insync.replicas", value)


class ClusterWithElr(Cluster):
    """The same with eligible leader replicas enabled."""

    elr = True


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=60, stateful_step_count=30)
TestClusterWithElr = ClusterWithElr.TestCase
TestClusterWithElr.settings = settings(max_examples=60, stateful_step_count=30)
