"""Replays records onto an image: one function per record type, in one table.

`replay` applies one record, `apply` a batch as a whole. Records that delimit transactions have no
meaning here, since they determine which records count at all: see `transactions.py`.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from ottla.metadata import replay_access, replay_cluster, replay_topics
from ottla.metadata.delta import Delta, delta_of
from ottla.metadata.image import Image, Provenance
from ottla.metadata.replay_fault import ReplayFault
from ottla.metadata.touched import Touched
from ottla.protocol.internal.metadata_cluster import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    ZkMigrationStateRecord,
)
from ottla.protocol.internal.metadata_security import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.protocol.internal.metadata_topics import (
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.protocol.schema import Message

RECORDS_PER_STEP: Final = 1000
"""Records that are applied before other work of the node goes on: a few milliseconds."""

# The key of the table is the record's type, which an annotation cannot express.
Replay: TypeAlias = Callable[[Image, Any, Touched], Image]


def _nothing(image: Image, record: Message, touched: Touched) -> Image:
    return image


REPLAYS: Mapping[type[Message], Replay] = MappingProxyType(
    {
        RegisterBrokerRecord: replay_cluster.register_broker,
        UnregisterBrokerRecord: replay_cluster.unregister_broker,
        FenceBrokerRecord: replay_cluster.fence_broker,
        UnfenceBrokerRecord: replay_cluster.unfence_broker,
        BrokerRegistrationChangeRecord: replay_cluster.change_broker,
        RegisterControllerRecord: replay_cluster.register_controller,
        UnregisterControllerRecord: replay_cluster.unregister_controller,
        FeatureLevelRecord: replay_cluster.feature_level,
        TopicRecord: replay_topics.topic,
        RemoveTopicRecord: replay_topics.remove_topic,
        PartitionRecord: replay_topics.partition,
        PartitionChangeRecord: replay_topics.partition_change,
        ClearElrRecord: replay_topics.clear_elr,
        ConfigRecord: replay_topics.config,
        ClientQuotaRecord: replay_topics.client_quota,
        ProducerIdsRecord: replay_topics.producer_ids,
        AccessControlEntryRecord: replay_access.add_acl,
        RemoveAccessControlEntryRecord: replay_access.remove_acl,
        UserScramCredentialRecord: replay_access.set_scram,
        RemoveUserScramCredentialRecord: replay_access.remove_scram,
        DelegationTokenRecord: replay_access.set_token,
        RemoveDelegationTokenRecord: replay_access.remove_token,
        NoOpRecord: replay_cluster.no_op,
        # Present in logs that were migrated from ZooKeeper; nothing depends on it any more.
        ZkMigrationStateRecord: _nothing,
    }
)


def replay(image: Image, record: Message) -> Image:
    """Return the image after one record. Raises `ReplayFault` if it does not apply."""
    return replay_tracked(image, record, Touched())


def apply(
    image: Image, records: Iterable[Message], provenance: Provenance | None = None
) -> tuple[Image, Delta]:
    """Return the image after a batch of records, and what the batch changed.

    ``provenance`` says how far the log is then read; without it the image keeps its own, as for
    the controller's image, which is ahead of what is committed. Raises `ReplayFault`.
    """
    steps = apply_steps(image, records, provenance)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        applied: tuple[Image, Delta] = end.value
        return applied


def apply_steps(
    image: Image, records: Iterable[Message], provenance: Provenance | None = None
) -> Generator[None, None, tuple[Image, Delta]]:
    """Apply as `apply` does, and yield after `RECORDS_PER_STEP` records."""
    touched = Touched()
    new = image
    for count, record in enumerate(records, 1):
        new = replay_tracked(new, record, touched)
        if not count % RECORDS_PER_STEP:
            yield
    if provenance is not None:
        new = replace(new, provenance=provenance)
    return new, delta_of(image, new, touched)


def replay_all(image: Image, records: Iterable[Message]) -> Image:
    """Return the image after many records, without a delta. Raises `ReplayFault`."""
    unread = Touched()
    for record in records:
        image = replay_tracked(image, record, unread)
    return image


def replay_tracked(image: Image, record: Message, touched: Touched) -> Image:
    """Return the image after one record, and add the keys it changed to ``touched``."""
    meaning = REPLAYS.get(type(record))
    if meaning is None:
        raise ReplayFault(f"{type(record).__name__} has no meaning within an image")
    return meaning(image, record, touched)
