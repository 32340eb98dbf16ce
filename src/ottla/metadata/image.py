"""The image: the state that a prefix of the metadata log results in, as one immutable value.

Copying it is copying a reference, and the next image shares everything that did not change. Two
images with the same content are equal whatever led to them, except for provenance, which says how
far in the log they reach.
"""

import msgspec
from immutables import Map

from ottla.metadata.access import DelegationToken, ScramCredential, ScramUser
from ottla.metadata.answered_requests import AnsweredRequests
from ottla.metadata.configs import ClientQuotas, Configs
from ottla.metadata.metadata_versions import METADATA_VERSION, MetadataVersion
from ottla.metadata.registrations import Cluster
from ottla.metadata.topics import Topics
from ottla.protocol.types import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    LeaderEpoch,
    Millis,
    Offset,
    ProducerId,
    Uuid,
)
from ottla.security.acl import Acl


class Provenance(msgspec.Struct, frozen=True, gc=False):
    """How much of the log is in an image: its last offset, and that offset's epoch and time."""

    offset: Offset = Offset(-1)
    epoch: LeaderEpoch = NO_EPOCH
    timestamp: Millis = NO_TIMESTAMP


class Features(msgspec.Struct, frozen=True, gc=False):
    """Finalized levels by feature, including metadata.version; level 0 is not stored.

    kraft.version is not included: the voters keep it in control records of the log (KIP-853).
    """

    levels: Map[str, int] = Map()

    def level(self, feature: str) -> int:
        """Return the finalized level of a feature, 0 if it is not finalized."""
        return self.levels.get(feature, 0)

    def metadata_version(self) -> MetadataVersion | None:
        """Return the finalized metadata.version; None before the first record of the log."""
        level = self.levels.get(METADATA_VERSION)
        return None if level is None else MetadataVersion(level)


class Image(msgspec.Struct, frozen=True, gc=False):
    """The cluster's state. ``next_producer_id`` is -1 until a block was allocated."""

    provenance: Provenance = Provenance()
    features: Features = Features()
    cluster: Cluster = Cluster()
    topics: Topics = Topics()
    configs: Configs = Configs()
    client_quotas: ClientQuotas = ClientQuotas()
    next_producer_id: ProducerId = NO_PRODUCER_ID
    acls: Map[Uuid, Acl] = Map()
    scram: Map[ScramUser, ScramCredential] = Map()
    delegation_tokens: Map[str, DelegationToken] = Map()
    answered: AnsweredRequests = AnsweredRequests()

    def metadata_version(self) -> MetadataVersion:
        """Return the finalized metadata.version of an image that has one."""
        version = self.features.metadata_version()
        assert version is not None, "the image has no metadata.version"
        return version


EMPTY = Image()
