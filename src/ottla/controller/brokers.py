"""Decisions about brokers: registration, epochs, fencing, unregistration.

A broker's epoch is the offset of its registration record: greater than that of any earlier
incarnation. Every request of a broker carries it, and requests with an older one are rejected.

    registers (fenced) --caught up--> unfenced --session expired--> fenced ...
                                         \\--requests shutdown--> controlled shutdown --> fenced
"""

from collections.abc import Iterator, Sequence

import msgspec

from ottla.controller.config_rules import is_elr_enabled
from ottla.controller.decision import Decision, Refusal
from ottla.controller.decision_settings import DecisionSettings
from ottla.controller.draft import Draft, drop_from_isr, in_isr
from ottla.controller.leader_and_isr import PartitionUpdate
from ottla.metadata.image import Image
from ottla.metadata.metadata_versions import METADATA_VERSION
from ottla.metadata.registrations import BrokerRegistration, is_same_directory
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_cluster import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from ottla.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from ottla.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from ottla.protocol.types import Offset, TopicIdPartition
from ottla.protocol.uuids import RESERVED_LIMIT, uuid_text

FENCE = 1
UNFENCE = -1
IN_CONTROLLED_SHUTDOWN = 1
# Partitions whose ISR a fenced broker leaves in one slice; each takes about 0.03 ms to decide,
# replay and encode.
FENCE_SLICE_MAX = 250


class RegistrationContext(msgspec.Struct, frozen=True):
    """The input of a registration beside the image.

    ``next_offset`` is the offset of its first record; ``has_session`` whether the registered
    incarnation of the same id still has a session.
    """

    cluster_id: str
    next_offset: Offset
    has_session: bool


# -- registration ---------------------------------------------------------------------------


def decide_broker_registration(
    image: Image,
    request: BrokerRegistrationRequest,
    context: RegistrationContext,
    settings: DecisionSettings,
) -> Decision[BrokerRegistrationResponse]:
    """Register a broker under a new epoch, fenced and in no ISR.

    Its logs are not known to be complete. The id of an incarnation shows from which directory it
    started, so that a broker need not wait for its own old session; it may be a restart that lost
    unsynced records, and is never taken for a repeated request. A broker that did not shut down
    cleanly is also removed from the eligible leader replicas (KIP-966).
    """
    refusal = refuse_registration(image, request, context)
    if refusal is not None:
        return Decision([], BrokerRegistrationResponse(error_code=int(refusal.code)))
    existing = image.cluster.brokers.get(request.broker_id)
    is_clean = existing is not None and existing.epoch == request.previous_broker_epoch
    records = _restarted(image, request.broker_id, is_clean, settings)
    record = _registration(image, request)
    record.broker_epoch = context.next_offset
    version = image.metadata_version().register_broker_record_version()
    records.append(Versioned(record, version))
    return Decision(records, BrokerRegistrationResponse(broker_epoch=record.broker_epoch))


def refuse_registration(
    image: Image, request: BrokerRegistrationRequest, context: RegistrationContext
) -> Refusal | None:
    """Return why a broker may not register; None if it may. The reply carries only the code."""
    if request.cluster_id != context.cluster_id:
        return Refusal(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"the cluster id is {context.cluster_id}, not {request.cluster_id}",
        )
    existing = image.cluster.brokers.get(request.broker_id)
    if (
        existing is not None
        and context.has_session
        and not is_same_directory(existing.incarnation_id, request.incarnation_id)
    ):
        return Refusal(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another broker {request.broker_id} has a session, which must expire first",
        )
    if request.is_migrating_zk_broker:
        return Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, "ZooKeeper migration is not supported")
    return _refuse_directories(image, request) or _refuse_features(image, request)


def _refuse_directories(image: Image, request: BrokerRegistrationRequest) -> Refusal | None:
    if not image.metadata_version().is_directory_assignment_supported():
        return None
    directories = request.log_dirs
    if not directories:
        return Refusal(ErrorCode.INVALID_REGISTRATION, "a broker needs at least one log directory")
    if any(int.from_bytes(directory, "big") < RESERVED_LIMIT for directory in directories):
        return Refusal(ErrorCode.INVALID_REGISTRATION, "a log directory has a reserved id")
    if len(set(directories)) != len(directories):
        return Refusal(ErrorCode.INVALID_REGISTRATION, "two log directories have the same id")
    for other in image.cluster.brokers.values():
        taken = set(other.log_dirs).intersection(directories)
        if other.id != request.broker_id and taken:
            return Refusal(
                ErrorCode.INVALID_REGISTRATION,
                f"log directory {uuid_text(min(taken))} belongs to broker {other.id}",
            )
    return None


def _refuse_features(image: Image, request: BrokerRegistrationRequest) -> Refusal | None:
    """Check that the broker supports every finalized level, and announces it."""
    ranges = {
        feature.name: (feature.min_supported_version, feature.max_supported_version)
        for feature in request.features
    }
    if METADATA_VERSION not in ranges:
        return Refusal(ErrorCode.INVALID_REGISTRATION, f"{METADATA_VERSION} is not announced")
    finalized = image.features.levels
    for name in sorted({*ranges, *finalized}):
        level = finalized.get(name, 0)
        low, high = ranges.get(name, (0, 0))
        if not low <= level <= high:
            return Refusal(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{name} is finalized at {level}, the broker supports {low} to {high}",
            )
    return None


def _registration(image: Image, request: BrokerRegistrationRequest) -> RegisterBrokerRecord:
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        rack=request.rack,
        end_points=[
            BrokerEndpoint(at.name, at.host, at.port, at.security_protocol)
            for at in request.listeners
        ],
        features=[
            BrokerFeature(f.name, f.min_supported_version, f.max_supported_version)
            for f in request.features
        ],
    )
    if image.metadata_version().is_directory_assignment_supported():
        record.log_dirs = list(request.log_dirs)
    return record


def _restarted(
    image: Image, broker_id: int, is_clean: bool, settings: DecisionSettings
) -> list[Versioned]:
    """Return the partition changes that the end of an older incarnation requires."""
    draft = Draft(image, settings, leaving=broker_id)
    if is_clean or not is_elr_enabled(image):
        drop_from_isr(draft, broker_id, in_isr(image, broker_id))
        return draft.records
    for at, partition in image.topics.replicas_on(broker_id):
        if broker_id in partition.isr or broker_id in partition.elr:
            topic = image.topics.by_id[at.topic_id]
            isr = tuple(replica for replica in partition.isr if replica != broker_id)
            wanted = PartitionUpdate(isr=isr, lost=broker_id)
            draft.change(topic, at.partition, wanted)
    return draft.records


# -- fencing --------------------------------------------------------------------------------


def decide_fence(
    image: Image, broker_id: int, epoch: int, settings: DecisionSettings
) -> Decision[None]:
    """Fence a broker whose session expired; nothing if it is fenced or has a newer epoch by now.

    It leaves the ISRs of its partitions in slices, and is fenced with the last one.
    """
    broker = image.cluster.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch or broker.fenced:
        return Decision([], None)
    return _fence_slice(image, broker, in_isr(image, broker_id), settings)


def _fence_slice(
    image: Image,
    broker: BrokerRegistration,
    left: Sequence[TopicIdPartition],
    settings: DecisionSettings,
) -> Decision[None]:
    """Remove a broker from the ISRs of the first partitions; fence it if there are no others."""
    rest = left[FENCE_SLICE_MAX:]
    if not rest:
        return Decision(fence_records(image, broker, left, settings), None)
    draft = Draft(image, settings, leaving=broker.id)
    drop_from_isr(draft, broker.id, left[:FENCE_SLICE_MAX])
    return Decision(
        draft.records, None, then=lambda newer: _fence_slice(newer, broker, rest, settings)
    )


def fence_records(
    image: Image,
    broker: BrokerRegistration,
    left: Sequence[TopicIdPartition],
    settings: DecisionSettings,
) -> list[Versioned]:
    """Return the records that fence a broker: first those that remove it from the ISRs ``left``.

    In that order, no prefix of a long list leaves a partition led by a fenced broker.
    """
    draft = Draft(image, settings, leaving=broker.id)
    drop_from_isr(draft, broker.id, left)
    return [*draft.records, Versioned(_change(broker, fenced=FENCE), 0)]


def unfence_records(
    image: Image,
    broker: BrokerRegistration,
    leadable: Sequence[TopicIdPartition],
    settings: DecisionSettings,
) -> list[Versioned]:
    """Return the records that unfence a broker and make it leader of ``leadable`` if it can be."""
    draft = Draft(image, settings, joining=broker.id)
    for at in leadable:
        topic = image.topics.by_id[at.topic_id]
        draft.change(topic, at.partition, PartitionUpdate())
    return [Versioned(_change(broker, fenced=UNFENCE), 0), *draft.records]


def controlled_shutdown_records(
    image: Image, broker: BrokerRegistration, settings: DecisionSettings
) -> list[Versioned]:
    """Return the records that move all leaderships off a broker in controlled shutdown."""
    draft = Draft(image, settings, leaving=broker.id)
    drop_from_isr(draft, broker.id, in_isr(image, broker.id))
    if broker.in_controlled_shutdown:
        return draft.records
    change = _change(broker)
    change.in_controlled_shutdown = IN_CONTROLLED_SHUTDOWN
    return [Versioned(change, 1), *draft.records]


def _change(broker: BrokerRegistration, fenced: int = 0) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, fenced=fenced
    )


# -- unregistration -------------------------------------------------------------------------


def decide_unregister_broker(
    image: Image, request: UnregisterBrokerRequest, settings: DecisionSettings
) -> Decision[UnregisterBrokerResponse]:
    """Unregister a broker. Partitions keep it as a replica until they are reassigned."""
    broker = image.cluster.brokers.get(request.broker_id)
    if broker is None:
        text = f"broker {request.broker_id} is not registered"
        code = int(ErrorCode.BROKER_ID_NOT_REGISTERED)
        return Decision([], UnregisterBrokerResponse(error_code=code, error_message=text))
    draft = Draft(image, settings, leaving=broker.id)
    drop_from_isr(draft, broker.id, in_isr(image, broker.id))
    record = UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
    return Decision(
        [*draft.records, Versioned(record, 0)], UnregisterBrokerResponse(error_message=None)
    )


# -- broker requests ------------------------------------------------------------------------


def refuse_broker(image: Image, broker_id: int, epoch: int) -> Refusal | None:
    """Return why a broker's request is rejected: its epoch is not the registered one."""
    known = image.cluster.broker_epoch(broker_id)
    if known != epoch or broker_id not in image.cluster.brokers:
        return Refusal(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} is registered at epoch {known}, not {epoch}",
        )
    return None


def led_by(image: Image, broker_id: int) -> Iterator[TopicIdPartition]:
    """Yield the partitions that a broker leads."""
    for at, partition in image.topics.replicas_on(broker_id):
        if partition.leader == broker_id:
            yield at
