"""The levels of metadata.version, and what each allows in the metadata log.

A level is finalized by the whole cluster (KIP-778). It determines the version in which a record is
written, so that a node that supports the level can also read the log.
"""

import enum

METADATA_VERSION = "metadata.version"


class MetadataVersion(enum.IntEnum):
    """A level of metadata.version. The value is what the feature record carries."""

    IBP_3_3_IV3 = 7
    IBP_3_4_IV0 = 8
    IBP_3_5_IV0 = 9
    IBP_3_5_IV1 = 10
    IBP_3_5_IV2 = 11
    IBP_3_6_IV0 = 12
    IBP_3_6_IV1 = 13
    IBP_3_6_IV2 = 14
    IBP_3_7_IV0 = 15
    IBP_3_7_IV1 = 16
    IBP_3_7_IV2 = 17
    IBP_3_7_IV3 = 18
    IBP_3_7_IV4 = 19
    IBP_3_8_IV0 = 20
    IBP_3_9_IV0 = 21
    IBP_4_0_IV0 = 22
    IBP_4_0_IV1 = 23
    IBP_4_0_IV2 = 24
    IBP_4_0_IV3 = 25
    IBP_4_1_IV0 = 26
    IBP_4_1_IV1 = 27
    IBP_4_2_IV0 = 28
    IBP_4_2_IV1 = 29
    IBP_4_3_IV0 = 30
    IBP_4_4_IV0 = 31
    IBP_4_4_IV1 = 32
    IBP_4_4_IV2 = 33

    def __str__(self) -> str:
        major, minor, patch = self.name.removeprefix("IBP_").split("_")
        return f"{major}.{minor}-{patch}"

    def release(self) -> str:
        """Return the release that introduced the level, as in ``4.2``."""
        return str(self).split("-")[0]

    def is_scram_supported(self) -> bool:
        """Whether SCRAM credentials may be in the log (KIP-900)."""
        return self >= MetadataVersion.IBP_3_5_IV2

    def is_metadata_transaction_supported(self) -> bool:
        """Whether records may be enclosed in a transaction (KIP-868)."""
        return self >= MetadataVersion.IBP_3_6_IV1

    def is_leader_epoch_bump_required_on_isr_shrink(self) -> bool:
        """Return whether a shrinking ISR must raise the leader epoch, as old followers expect."""
        return self < MetadataVersion.IBP_3_6_IV0

    def is_delegation_token_supported(self) -> bool:
        """Whether delegation tokens may be in the log (KIP-900)."""
        return self >= MetadataVersion.IBP_3_6_IV2

    def is_controller_registration_supported(self) -> bool:
        """Whether controllers register (KIP-919)."""
        return self >= MetadataVersion.IBP_3_7_IV0

    def is_directory_assignment_supported(self) -> bool:
        """Whether replicas have directories (KIP-858)."""
        return self >= MetadataVersion.IBP_3_7_IV2

    def is_elr_supported(self) -> bool:
        """Whether partitions have eligible leader replicas (KIP-966)."""
        return self >= MetadataVersion.IBP_4_0_IV1

    def is_cordoned_log_dirs_supported(self) -> bool:
        """Whether brokers report cordoned log directories (KIP-1066)."""
        return self >= MetadataVersion.IBP_4_3_IV0

    def is_cidr_acl_host_supported(self) -> bool:
        """Whether the host of an ACL may be a range of addresses (KIP-1276)."""
        return self >= MetadataVersion.IBP_4_4_IV1

    def is_controller_unregistration_supported(self) -> bool:
        """Whether a controller's registration can be removed (KIP-1312)."""
        return self >= MetadataVersion.IBP_4_4_IV2

    def is_migration_supported(self) -> bool:
        """Whether a broker's record can say that it came from ZooKeeper (KIP-866)."""
        return self >= MetadataVersion.IBP_3_4_IV0

    def register_broker_record_version(self) -> int:
        """Return the version of a broker's registration record."""
        if self.is_cordoned_log_dirs_supported():
            return 4
        if self.is_directory_assignment_supported():
            return 3
        return 2 if self.is_migration_supported() else 1

    def partition_record_version(self) -> int:
        """Return the version of a partition record."""
        if self.is_elr_supported():
            return 2
        return 1 if self.is_directory_assignment_supported() else 0

    def partition_change_record_version(self) -> int:
        """Return the version of a partition change record."""
        return self.partition_record_version()

    # -- requests between brokers, which also a broker of an older release has to serve ----------

    def fetch_request_version(self) -> int:
        """Return the newest version of Fetch that a follower may send to a leader."""
        return _newest(_FETCH_VERSIONS, self)

    def list_offsets_request_version(self) -> int:
        """Return the newest version of ListOffsets that a follower may send to a leader."""
        return _newest(_LIST_OFFSETS_VERSIONS, self)


# The level from which on a request version is used between brokers, newest first.
_FETCH_VERSIONS = (
    (MetadataVersion.IBP_4_1_IV1, 18),
    (MetadataVersion.IBP_3_9_IV0, 17),
    (MetadataVersion.IBP_3_7_IV4, 16),
    (MetadataVersion.IBP_3_5_IV1, 15),
    (MetadataVersion.IBP_3_5_IV0, 14),
    (MetadataVersion.IBP_3_3_IV3, 13),
)
_LIST_OFFSETS_VERSIONS = (
    (MetadataVersion.IBP_4_2_IV1, 11),
    (MetadataVersion.IBP_4_0_IV3, 10),
    (MetadataVersion.IBP_3_9_IV0, 9),
    (MetadataVersion.IBP_3_5_IV0, 8),
    (MetadataVersion.IBP_3_3_IV3, 7),
)


def _newest(versions: tuple[tuple[MetadataVersion, int], ...], level: MetadataVersion) -> int:
    return next(version for since, version in versions if level >= since)


MINIMUM_VERSION = MetadataVersion.IBP_3_3_IV3
# The newest level that this software supports.
LATEST_PRODUCTION = MetadataVersion.IBP_4_4_IV2
# The level of a new cluster, that of Kafka 4.2: nodes of that release can then join it.
DEFAULT_VERSION = MetadataVersion.IBP_4_2_IV1


def from_version_string(text: str) -> MetadataVersion | None:
    """Parse a level as given by an operator: ``4.2-IV1``, or a release, ``4.2`` or ``4.2.1``.

    A release stands for its newest level. Returns None for an unknown level.
    """
    version = ".".join(text.split(".")[:2])
    return next((v for v in reversed(MetadataVersion) if version in (str(v), v.release())), None)


def is_metadata_changed(one: MetadataVersion, other: MetadataVersion) -> bool:
    """Return whether going from one level to the other changes what the log can contain.

    A downgrade across such a change loses metadata.
    """
    low, high = sorted((one, other))
    return any(low < level <= high for level in _CHANGED)


_CHANGED = (
    MetadataVersion.IBP_3_3_IV3,
    MetadataVersion.IBP_3_4_IV0,
    MetadataVersion.IBP_3_5_IV2,
    MetadataVersion.IBP_3_6_IV1,
    MetadataVersion.IBP_3_6_IV2,
    MetadataVersion.IBP_3_7_IV0,
    MetadataVersion.IBP_3_7_IV2,
    MetadataVersion.IBP_4_0_IV1,
    MetadataVersion.IBP_4_3_IV0,
    MetadataVersion.IBP_4_4_IV1,
    MetadataVersion.IBP_4_4_IV2,
)
