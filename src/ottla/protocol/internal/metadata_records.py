"""The records of the metadata log, by number, and their framing (KIP-631)."""

from collections.abc import Mapping
from types import MappingProxyType

from ottla.protocol.faults import UnsupportedVersion
from ottla.protocol.internal.framing import Versioned, decode_framed
from ottla.protocol.internal.metadata_cluster import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
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
from ottla.protocol.types import Buffer


class NewerMetadataRecord(UnsupportedVersion):
    """A record that the finalized metadata.version allows and this release does not know."""


METADATA_RECORDS: Mapping[int, type[Message]] = MappingProxyType(
    {
        0: RegisterBrokerRecord,
        1: UnregisterBrokerRecord,
        2: TopicRecord,
        3: PartitionRecord,
        4: ConfigRecord,
        5: PartitionChangeRecord,
        7: FenceBrokerRecord,
        8: UnfenceBrokerRecord,
        9: RemoveTopicRecord,
        10: DelegationTokenRecord,
        11: UserScramCredentialRecord,
        12: FeatureLevelRecord,
        14: ClientQuotaRecord,
        15: ProducerIdsRecord,
        17: BrokerRegistrationChangeRecord,
        18: AccessControlEntryRecord,
        19: RemoveAccessControlEntryRecord,
        20: NoOpRecord,
        21: ZkMigrationStateRecord,
        22: RemoveUserScramCredentialRecord,
        23: BeginTransactionRecord,
        24: EndTransactionRecord,
        25: AbortTransactionRecord,
        26: RemoveDelegationTokenRecord,
        27: RegisterControllerRecord,
        28: ClearElrRecord,
        29: UnregisterControllerRecord,
    }
)


def decode_metadata_record(buffer: Buffer) -> Versioned:
    """Read a value of the metadata log.

    Raises:
        ProtocolFault: also for an unknown type, since a node that skips a record of the metadata
            log no longer has the cluster's state.
        NewerMetadataRecord: a version that only a newer release knows, for the same reason.
    """
    try:
        return decode_framed(METADATA_RECORDS, buffer)
    except UnsupportedVersion as error:
        raise NewerMetadataRecord(f"a record of the metadata log is too new: {error}") from error
