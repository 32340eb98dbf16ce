"""The effect of each record where a rule is easy to get wrong, and records that do not apply."""

import pytest

from ottla.metadata.configs import ConfigResource, ConfigResourceType, quota_entity
from ottla.metadata.image import EMPTY, Image
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.metadata.replay import REPLAYS, apply, replay, replay_all
from ottla.metadata.replay_fault import ReplayFault
from ottla.metadata.topics import (
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    LeaderRecoveryState,
    PartitionRegistration,
)
from ottla.protocol.internal.metadata_cluster import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    ZkMigrationStateRecord,
)
from ottla.protocol.internal.metadata_records import METADATA_RECORDS
from ottla.protocol.internal.metadata_security import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.protocol.internal.metadata_topics import (
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import TopicIdPartition

ID = bytes(15) + b"\x09"
DIR_A, DIR_B = b"A" * 16, b"B" * 16

TOPIC = TopicRecord("orders", ID)
PARTITION = PartitionRecord(
    partition_id=0,
    topic_id=ID,
    replicas=[0, 1],
    isr=[0, 1],
    leader=0,
    leader_epoch=4,
    partition_epoch=7,
    directories=[DIR_A, DIR_B],
)
BROKER = RegisterBrokerRecord(
    broker_id=0,
    broker_epoch=12,
    incarnation_id=b"I" * 16,
    end_points=[BrokerEndpoint("PLAINTEXT", "h", 9092, 0)],
    features=[BrokerFeature("metadata.version", 7, 29)],
    rack=None,
    log_dirs=[DIR_B, DIR_A],
)


def led() -> Image:
    return replay_all(EMPTY, [TOPIC, PARTITION])


def changed(**fields: object) -> PartitionRegistration:
    record = PartitionChangeRecord(partition_id=0, topic_id=ID, **fields)  # type: ignore[arg-type]
    partition = replay(led(), record).topics.partition(ID, 0)
    assert partition is not None
    return partition


def test_every_record_is_replayed_or_delimits_a_transaction() -> None:
    brackets = {BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord}
    assert set(REPLAYS) | brackets == set(METADATA_RECORDS.values())
    for bracket in brackets:
        with pytest.raises(ReplayFault, match="no meaning"):
            replay(EMPTY, bracket())


# -- topics and partitions ---------------------------------------------------------------------


def test_topic_is_found_by_name_and_by_id() -> None:
    topics = led().topics
    assert topics.named("orders") == topics.by_id[ID]
    assert topics.names() == ["orders"] and topics.partition_count == 1
    assert topics.named("other") is None and topics.partition(b"?" * 16, 0) is None


def test_node_0_can_lead_and_no_leader_is_minus_1() -> None:
    topics = led().topics
    assert topics.leader(ID, 0) == 0 and topics.by_id[ID].partitions[0].has_leader()
    assert topics.leader(ID, 1) == -1 and topics.leader(b"?" * 16, 0) == -1
    assert not changed(leader=-1).has_leader()


def test_change_without_leader_keeps_the_leader_epoch() -> None:
    partition = changed(isr=[0])
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (0, 4, 8)
    assert partition.isr == (0,) and partition.replicas == (0, 1)


def test_change_with_the_same_leader_raises_the_leader_epoch() -> None:
    assert (changed(leader=0).leader, changed(leader=0).leader_epoch) == (0, 5)
    assert (changed(leader=-1).leader, changed(leader=-1).leader_epoch) == (-1, 5)


def test_empty_list_is_a_change_and_null_is_not() -> None:
    assert changed(isr=[]).isr == ()
    assert changed(eligible_leader_replicas=[1]).elr == (1,)
    assert changed(adding_replicas=[1], removing_replicas=[0]).is_reassigning()


def test_leader_recovery_state_is_replayed() -> None:
    assert changed(leader_recovery_state=1).leader_recovery_state is LeaderRecoveryState.RECOVERING
    assert changed().leader_recovery_state is LeaderRecoveryState.RECOVERED
    with pytest.raises(ReplayFault, match="recovery state 2"):
        changed(leader_recovery_state=2)


def test_directories_are_parallel_to_replicas() -> None:
    partition = changed(replicas=[1, 2, 0], directories=[DIR_B, DIRECTORY_UNASSIGNED, DIR_A])
    assert partition.directory(2) == DIRECTORY_UNASSIGNED and partition.directory(0) == DIR_A
    assert partition.directory(9) is None
    with pytest.raises(ReplayFault, match="2 directories for 3 replicas"):
        changed(replicas=[0, 1, 2])
    with pytest.raises(ReplayFault, match="1 directories for 2 replicas"):
        replay(led(), PartitionRecord(0, ID, [0, 1], [0], directories=[DIR_A]))


def test_replicas_without_directories_are_migrating() -> None:
    old = replay(led(), PartitionRecord(1, ID, [0, 1], [0], leader=0))
    first = old.topics.partition(ID, 1)
    grown = replay(old, PartitionChangeRecord(1, ID, replicas=[0, 1, 2])).topics.partition(ID, 1)
    assert first is not None and first.directories == (DIRECTORY_MIGRATING,) * 2
    assert grown is not None and grown.directories == (DIRECTORY_MIGRATING,) * 3


def test_removed_topic_removes_its_configs_and_nothing_else() -> None:
    image = replay_all(
        led(),
        [
            ConfigRecord(2, "orders", "retention.ms", "1"),
            ConfigRecord(2, "other", "retention.ms", "2"),
            ConfigRecord(4, "orders", "x", "3"),
        ],
    )
    image, delta = apply(image, [RemoveTopicRecord(ID)])
    assert sorted(image.configs.by_resource) == [(2, "other"), (4, "orders")]
    assert image.topics == EMPTY.topics
    assert [topic.name for topic in delta.deleted_topics()] == ["orders"]
    assert [(at, c.is_deleted()) for at, c in delta.partitions()] == [
        (TopicIdPartition(ID, 0), True)
    ]
    assert list(delta.configs) == [ConfigResource(ConfigResourceType.TOPIC, "orders")]


def test_topic_created_and_removed_in_one_batch_leaves_no_delta() -> None:
    image, delta = apply(EMPTY, [TOPIC, PARTITION, RemoveTopicRecord(ID)])
    assert image == EMPTY and delta.is_empty()


def test_setting_an_equal_value_changes_nothing() -> None:
    image = replay_all(led(), [BROKER, ConfigRecord(4, "", "a", "1")])
    again, delta = apply(image, [PARTITION, BROKER, ConfigRecord(4, "", "a", "1")])
    assert again == image and delta.is_empty()


def test_clear_elr_changes_only_partitions_with_elr() -> None:
    image = replay_all(
        led(),
        [
            PartitionChangeRecord(0, ID, eligible_leader_replicas=[1]),
            PartitionRecord(1, ID, [0], [0], leader=0, partition_epoch=0),
            PartitionRecord(2, ID, [0], [0], leader=0, partition_epoch=0, last_known_elr=[0]),
        ],
    )
    for name in ("orders", ""):
        new, delta = apply(image, [ClearElrRecord(name)])
        assert [at.partition for at, _ in delta.partitions()] == [0, 2]
        partitions = new.topics.by_id[ID].partitions
        assert [partitions[n].partition_epoch for n in range(3)] == [9, 0, 1]
        assert not any(p.elr or p.last_known_elr for p in partitions.values())
    other = replay(image, TopicRecord("other", b"o" * 16))
    assert apply(other, [ClearElrRecord("other")])[1].is_empty()


# -- nodes -------------------------------------------------------------------------------------


def test_broker_registers_fenced_and_changes_by_its_epoch() -> None:
    image = replay(EMPTY, BROKER)
    assert image.cluster.broker_epoch(0) == 12 and image.cluster.broker_epoch(5) == -1
    assert not image.cluster.is_unfenced(0) and image.cluster.unfenced() == []
    assert image.cluster.brokers[0].log_dirs == (DIR_A, DIR_B)
    image = replay(image, BrokerRegistrationChangeRecord(0, 12, fenced=-1))
    assert image.cluster.is_active(0) and [b.id for b in image.cluster.unfenced()] == [0]
    image = replay(image, BrokerRegistrationChangeRecord(0, 12, in_controlled_shutdown=1))
    assert image.cluster.is_unfenced(0) and not image.cluster.is_active(0)
    image = replay(image, BrokerRegistrationChangeRecord(0, 12, fenced=1, log_dirs=[DIR_A]))
    broker = image.cluster.brokers[0]
    assert broker.fenced and broker.in_controlled_shutdown and broker.log_dirs == (DIR_A,)


def test_older_fencing_records_are_replayed() -> None:
    image = replay_all(EMPTY, [BROKER, UnfenceBrokerRecord(0, 12)])
    assert image.cluster.is_unfenced(0)
    assert not replay(image, FenceBrokerRecord(0, 12)).cluster.is_unfenced(0)


def test_unregistered_broker_stays_a_replica() -> None:
    image = replay_all(led(), [BROKER, UnregisterBrokerRecord(0, 12)])
    assert dict(image.cluster.brokers) == {}
    assert [at for at, _ in image.topics.replicas_on(0)] == [(ID, 0)]


def test_delta_contains_old_and_new_broker() -> None:
    old = replay(EMPTY, BROKER)
    new, delta = apply(old, [UnfenceBrokerRecord(0, 12), RegisterControllerRecord(3)])
    change = delta.brokers[0]
    assert change.old == old.cluster.brokers[0] and change.new == new.cluster.brokers[0]
    assert delta.controllers[3].old is None


# -- features, configs, quotas, ids ------------------------------------------------------------


def test_features_are_finalized_and_removed_by_level_0() -> None:
    assert EMPTY.features.metadata_version() is None
    image = replay_all(
        EMPTY,
        [FeatureLevelRecord("metadata.version", 29), FeatureLevelRecord("group.version", 1)],
    )
    assert image.metadata_version() is MetadataVersion.IBP_4_2_IV1
    assert image.features.level("group.version") == 1
    image, delta = apply(image, [FeatureLevelRecord("group.version", 0)])
    assert "group.version" not in image.features.levels
    assert delta.features["group.version"].is_deleted()
    assert "metadata.version" not in delta.features
    _, delta = apply(image, [FeatureLevelRecord("metadata.version", 28)])
    assert "metadata.version" in delta.features


@pytest.mark.parametrize("level", [0, 6, 34])
def test_unknown_metadata_version_is_a_replay_fault(level: int) -> None:
    with pytest.raises(ReplayFault, match=f"metadata.version {level}"):
        replay(EMPTY, FeatureLevelRecord("metadata.version", level))


def test_no_op_records_change_no_image() -> None:
    silent = [NoOpRecord(), ZkMigrationStateRecord(3), FeatureLevelRecord("kraft.version", 1)]
    image, delta = apply(led(), silent)
    assert image == led() and delta.is_empty()


def test_configs_are_removed_by_null_and_empty_is_a_value() -> None:
    key = ConfigResource(ConfigResourceType.BROKER, "")
    image = replay(EMPTY, ConfigRecord(4, "", "a", ""))
    assert dict(image.configs.of(key)) == {"a": ""}
    image, delta = apply(image, [ConfigRecord(4, "", "a", None)])
    assert image == EMPTY and delta.configs[key].is_deleted()
    assert apply(image, [ConfigRecord(4, "", "a", None)])[1].is_empty()


def test_quota_entity_is_independent_of_order_and_none_is_the_default() -> None:
    user, client = EntityData("user", None), EntityData("client-id", "c")
    image = replay_all(
        EMPTY,
        [ClientQuotaRecord([user, client], "k", 1.5), ClientQuotaRecord([client, user], "l", 2.0)],
    )
    entity = quota_entity([("user", None), ("client-id", "c")])
    assert dict(image.client_quotas.of(entity)) == {"k": 1.5, "l": 2.0}
    gone = [ClientQuotaRecord([user, client], key, remove=True) for key in ("k", "l")]
    assert replay_all(image, gone) == EMPTY


def test_next_producer_id_is_initially_unset() -> None:
    assert EMPTY.next_producer_id == -1
    image, delta = apply(EMPTY, [ProducerIdsRecord(1, 12, 1000)])
    assert image.next_producer_id == 1000
    assert delta.next_producer_id is not None and delta.next_producer_id.old == -1


def test_credential_repr_hides_its_keys() -> None:
    image = replay(EMPTY, UserScramCredentialRecord("u", 1, b"salt!", b"stored!", b"server!", 4096))
    assert "stored!" not in repr(image) and "server!" not in repr(image)


def test_token_may_be_removed_twice() -> None:
    assert replay(EMPTY, RemoveDelegationTokenRecord("t")) is EMPTY


# -- records that do not apply -----------------------------------------------------------------

ACL = AccessControlEntryRecord(b"1" * 16, 2, "t", 3, "User:u", "*", 3, 3)


@pytest.mark.parametrize(
    "record",
    [
        TopicRecord("orders", b"x" * 16),
        TopicRecord("other", ID),
        RemoveTopicRecord(b"x" * 16),
        PartitionRecord(0, b"x" * 16),
        PartitionChangeRecord(0, b"x" * 16),
        PartitionChangeRecord(1, ID),
        ClearElrRecord("other"),
        FenceBrokerRecord(0, 11),
        UnfenceBrokerRecord(1, 12),
        UnregisterBrokerRecord(0, 13),
        BrokerRegistrationChangeRecord(0, 11),
        BrokerRegistrationChangeRecord(0, 12, fenced=2),
        BrokerRegistrationChangeRecord(0, 12, in_controlled_shutdown=-1),
        ACL,
        RemoveAccessControlEntryRecord(b"2" * 16),
        RemoveUserScramCredentialRecord("u", 1),
    ],
    ids=lambda record: type(record).__name__,
)
def test_record_that_does_not_apply_is_a_replay_fault(record: Message) -> None:
    image = replay_all(led(), [BROKER, ACL])
    with pytest.raises(ReplayFault):
        replay(image, record)
