"""Converts an image to records, in Kafka's order, for a snapshot (KIP-630).

    features (metadata.version first), brokers, controllers, topics each with its partitions,
    configs, client quotas, producer ids, ACLs, SCRAM credentials, delegation tokens,
    forwarded requests that were answered (tagged fields of Ottla, which Kafka skips)

Replaying the records on the empty image gives the image. Records are written in the versions of the
finalized metadata.version, so that every node that supports it can read them.

The records come in batches of bounded size from a generator, so that the writer can let other tasks
run in between. Records of one type are ascending by key, independent of the hash seed.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TypeVar

from ottla.metadata.image import EMPTY, Image
from ottla.metadata.metadata_versions import METADATA_VERSION, MetadataVersion
from ottla.metadata.registrations import BrokerRegistration, ControllerRegistration
from ottla.metadata.topics import DIRECTORY_MIGRATING, PartitionRegistration
from ottla.protocol.internal.framing import Versioned, encode_framed
from ottla.protocol.internal.metadata_cluster import (
    BrokerEndpoint,
    BrokerFeature,
    ControllerEndpoint,
    ControllerFeature,
    FeatureLevelRecord,
    NoOpRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from ottla.protocol.internal.metadata_security import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
)
from ottla.protocol.internal.metadata_topics import (
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from ottla.protocol.types import TopicIdPartition

# Creating and writing so many takes a few milliseconds. Python's collector scans all young objects
# after 700 more were created than freed; a whole batch alive must stay below that, or every
# snapshot of a large image would make the collector scan all of it.
BATCH_RECORDS_MAX = 128

K = TypeVar("K")
Loss = Callable[[str], None]


class UnwritableMetadata(Exception):
    """The image contains something that the metadata.version cannot express."""


def refuse_loss(what: str) -> None:
    """Raise for an image that could not be restored completely."""
    raise UnwritableMetadata(f"the metadata.version cannot express {what}")


def snapshot_values(image: Image) -> Iterator[list[bytes]]:
    """Yield the image as encoded record values, at most `BATCH_RECORDS_MAX` at a time.

    Use this to write a snapshot: each record is encoded when it is created, and freed. Keeping a
    batch of records instead would fill the collector's young generations and make it scan a large
    image again and again. Raises `UnwritableMetadata`.
    """
    values = map(encode_framed, snapshot_records(image))
    while batch := list(islice(values, BATCH_RECORDS_MAX)):
        yield batch


def snapshot_records(
    image: Image, level: MetadataVersion | None = None, loss: Loss = refuse_loss
) -> Iterator[Versioned]:
    """Return an iterator over the image's records.

    ``level`` is the metadata.version to write for, by default the image's own. ``loss`` is called
    with what that level cannot express; if it returns, that part is left out.
    """
    version = image.metadata_version() if level is None else level
    return chain(
        _features(image, version),
        _cluster(image, version, loss),
        _topics(image, version, loss),
        _configs(image),
        _access(image, version, loss),
        _answered(image),
    )


def losses(image: Image, level: MetadataVersion) -> list[str]:
    """Return what a lower metadata.version cannot express of an image, each thing once."""
    lost: dict[str, None] = {}
    for _ in snapshot_records(image, level, loss=lambda what: lost.setdefault(what)):
        pass
    return list(lost)


def _ascending(keys: Iterable[K]) -> Iterator[K]:
    """Yield keys in order, sorting incrementally.

    Sorting the ids of 100,000 topics at once would block the event loop for too long.
    """
    heap = list(keys)
    heapq.heapify(heap)  # type: ignore[type-var]
    while heap:
        yield heapq.heappop(heap)  # type: ignore[type-var]


def _features(image: Image, level: MetadataVersion) -> Iterator[Versioned]:
    yield Versioned(FeatureLevelRecord(name=METADATA_VERSION, feature_level=int(level)), 0)
    levels = image.features.levels
    for name in sorted(levels):
        if name != METADATA_VERSION:
            yield Versioned(FeatureLevelRecord(name=name, feature_level=levels[name]), 0)


def _cluster(image: Image, level: MetadataVersion, loss: Loss) -> Iterator[Versioned]:
    brokers, controllers = image.cluster.brokers, image.cluster.controllers
    for node_id in sorted(brokers):
        yield broker_record(brokers[node_id], level, loss)
    if controllers and not level.is_controller_registration_supported():
        loss("controller registrations")
        return
    for node_id in sorted(controllers):
        yield Versioned(_controller_record(controllers[node_id]), 0)


def broker_record(
    broker: BrokerRegistration, level: MetadataVersion, loss: Loss = refuse_loss
) -> Versioned:
    """Return the record that creates a registration."""
    record = RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(name, at.host, at.port, at.security_protocol)
            for name, at in sorted(broker.listeners.items())
        ],
        features=[
            BrokerFeature(name, levels.min, levels.max)
            for name, levels in sorted(broker.features.items())
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
    )
    if broker.is_migrating_zk_broker:
        if level.is_migration_supported():
            record.is_migrating_zk_broker = True
        else:
            loss("that brokers are migrating from ZooKeeper")
    if level.is_directory_assignment_supported():
        record.log_dirs = list(broker.log_dirs)
    elif broker.log_dirs:
        loss("the log directories of brokers")
    if broker.cordoned_log_dirs is not None:
        if level.is_cordoned_log_dirs_supported():
            record.cordoned_log_dirs = list(broker.cordoned_log_dirs)
        else:
            loss("the cordoned log directories of brokers")
    return Versioned(record, level.register_broker_record_version())


def _controller_record(controller: ControllerRegistration) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[
            ControllerEndpoint(name, at.host, at.port, at.security_protocol)
            for name, at in sorted(controller.listeners.items())
        ],
        features=[
            ControllerFeature(name, levels.min, levels.max)
            for name, levels in sorted(controller.features.items())
        ],
    )


def _topics(image: Image, level: MetadataVersion, loss: Loss) -> Iterator[Versioned]:
    by_id = image.topics.by_id
    for topic_id in _ascending(by_id):
        topic = by_id[topic_id]
        yield Versioned(TopicRecord(name=topic.name, topic_id=topic_id), 0)
        for partition_id in _ascending(topic.partitions):
            at = TopicIdPartition(topic_id, partition_id)
            yield partition_record(at, topic.partitions[partition_id], level, loss)


def partition_record(
    at: TopicIdPartition,
    partition: PartitionRegistration,
    level: MetadataVersion,
    loss: Loss = refuse_loss,
) -> Versioned:
    """Return the record that creates a partition.

    Eligible leader replicas are written whenever the record version has a field for them, whether
    the feature is finalized or not, so that a snapshot gives the same image as the log. Without the
    field they are silently left out, as in Kafka.
    """
    record = PartitionRecord(
        partition_id=at.partition,
        topic_id=at.topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=int(partition.leader_recovery_state),
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
    )
    if level.is_elr_supported():
        # Null if empty: a tagged field at its default takes no bytes.
        record.eligible_leader_replicas = list(partition.elr) or None
        record.last_known_elr = list(partition.last_known_elr) or None
    if level.is_directory_assignment_supported():
        record.directories = list(partition.directories)
    elif any(directory != DIRECTORY_MIGRATING for directory in partition.directories):
        loss("the directories of replicas")
    return Versioned(record, level.partition_record_version())


def _configs(image: Image) -> Iterator[Versioned]:
    for resource in _ascending(image.configs.by_resource):
        for name, value in sorted(image.configs.of(resource).items()):
            record = ConfigRecord(int(resource.type), resource.name, name, value)
            yield Versioned(record, 0)
    # A name may be None, which does not compare: ordered by its printed form.
    for entity in sorted(image.client_quotas.by_entity, key=repr):
        parts = [EntityData(kind, name) for kind, name in entity]
        for key, limit in sorted(image.client_quotas.of(entity).items()):
            yield Versioned(ClientQuotaRecord(parts, key, limit), 0)
    if image.next_producer_id != EMPTY.next_producer_id:
        record_ids = ProducerIdsRecord(-1, -1, image.next_producer_id)
        yield Versioned(record_ids, 0)


def _access(image: Image, level: MetadataVersion, loss: Loss) -> Iterator[Versioned]:
    for acl_id in _ascending(image.acls):
        acl = image.acls[acl_id]
        yield Versioned(
            AccessControlEntryRecord(
                acl_id,
                acl.resource_type,
                acl.resource_name,
                acl.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            ),
            0,
        )
    if image.scram and not level.is_scram_supported():
        loss("SCRAM credentials")
    else:
        yield from _scram(image)
    if image.delegation_tokens and not level.is_delegation_token_supported():
        loss("delegation tokens")
    else:
        yield from _tokens(image)


def _answered(image: Image) -> Iterator[Versioned]:
    for request_id in image.answered.order:
        request = image.answered.by_id[request_id]
        yield Versioned(NoOpRecord(request_id, request.api_key, request.reply), 0)


def _scram(image: Image) -> Iterator[Versioned]:
    for user in _ascending(image.scram):
        credential = image.scram[user]
        yield Versioned(
            UserScramCredentialRecord(
                user.name,
                user.mechanism,
                credential.salt,
                credential.stored_key,
                credential.server_key,
                credential.iterations,
            ),
            0,
        )


def _tokens(image: Image) -> Iterator[Versioned]:
    for token_id in _ascending(image.delegation_tokens):
        token = image.delegation_tokens[token_id]
        yield Versioned(
            DelegationTokenRecord(
                token.owner,
                token.requester,
                list(token.renewers),
                token.issue_timestamp,
                token.max_timestamp,
                token.expiration_timestamp,
                token_id,
            ),
            0,
        )
