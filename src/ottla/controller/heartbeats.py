"""BrokerHeartbeat: the state a broker asks for, and the state it is granted.

    fenced          wants to run, has read its registration  -> unfenced
                    wants to shut down                       -> may shut down
    unfenced        wants to be fenced                       -> fenced
                    wants to shut down, leads partitions     -> controlled shutdown
                    wants to shut down, leads none           -> fenced, may shut down
    controlled      leads none, and all remaining brokers
    shutdown        have read the new leaders                -> fenced, may shut down

The last rule keeps clients from being sent to a broker that has stopped.
"""

import enum

from ottla.controller.broker_liveness import UNKNOWN_OFFSET, HeartbeatContext
from ottla.controller.brokers import (
    controlled_shutdown_records,
    fence_records,
    led_by,
    refuse_broker,
    unfence_records,
)
from ottla.controller.decision import ControllerState, Decision
from ottla.controller.decision_settings import DecisionSettings
from ottla.controller.draft import in_isr
from ottla.controller.replica_dirs import cordon_records, offline_records
from ottla.metadata.image import Image
from ottla.metadata.registrations import BrokerRegistration
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)


class BrokerState(enum.Enum):
    """The state of a broker as the controller sees it."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


def decide_broker_heartbeat(
    state: ControllerState,
    request: BrokerHeartbeatRequest,
    context: HeartbeatContext,
    settings: DecisionSettings,
) -> Decision[BrokerHeartbeatResponse]:
    """Grant the requested state as far as allowed, and record failed and cordoned directories."""
    image = state.image
    refusal = refuse_broker(image, request.broker_id, request.broker_epoch)
    if refusal is not None:
        return Decision([], BrokerHeartbeatResponse(error_code=int(refusal.code)))
    broker = image.cluster.brokers[request.broker_id]
    current = _current_state(broker, context)
    granted = next_state(image, request, context)
    records = [] if granted is current else _transition(state, request, granted, settings)
    if image.metadata_version().is_directory_assignment_supported():
        # A broker that leaves every ISR in this decision need not leave some of them again.
        is_leaving = granted is not current and granted is not BrokerState.UNFENCED
        failed = request.offline_log_dirs
        records += offline_records(image, broker, failed, settings, is_leaving=is_leaving)
    records += cordon_records(image, broker, request.cordoned_log_dirs)
    return Decision(
        records,
        BrokerHeartbeatResponse(
            is_caught_up=_is_caught_up(broker, request),
            is_fenced=granted in _GONE,
            should_shut_down=granted is BrokerState.SHUTDOWN_NOW,
        ),
    )


_GONE = (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


def next_state(
    image: Image, request: BrokerHeartbeatRequest, context: HeartbeatContext
) -> BrokerState:
    """Return the state of a registered broker after its heartbeat."""
    broker = image.cluster.brokers[request.broker_id]
    current = _current_state(broker, context)
    if current is BrokerState.FENCED:
        return _from_fenced(broker, request)
    if current is BrokerState.CONTROLLED_SHUTDOWN:
        is_known = context.shutdown_offset <= context.lowest_active_offset
        is_done = is_known and not _is_leading(image, broker)
        return BrokerState.SHUTDOWN_NOW if is_done else current
    if request.want_shut_down:
        if not request.want_fence and _is_leading(image, broker):
            return BrokerState.CONTROLLED_SHUTDOWN
        return BrokerState.SHUTDOWN_NOW
    return BrokerState.FENCED if request.want_fence else BrokerState.UNFENCED


def _is_leading(image: Image, broker: BrokerRegistration) -> bool:
    # Reads all of its partitions: too expensive for every heartbeat.
    return next(led_by(image, broker.id), None) is not None


def _current_state(broker: BrokerRegistration, context: HeartbeatContext) -> BrokerState:
    # A new leader does not know the offset of a shutdown that began before it: the broker then
    # counts as unfenced, asks again, and the partitions it still leads are moved.
    if broker.fenced:
        return BrokerState.FENCED
    if context.shutdown_offset != UNKNOWN_OFFSET:
        return BrokerState.CONTROLLED_SHUTDOWN
    return BrokerState.UNFENCED


def _from_fenced(broker: BrokerRegistration, request: BrokerHeartbeatRequest) -> BrokerState:
    if request.want_shut_down:
        return BrokerState.SHUTDOWN_NOW
    if request.want_fence or not _is_caught_up(broker, request):
        return BrokerState.FENCED
    return BrokerState.UNFENCED


def _is_caught_up(broker: BrokerRegistration, request: BrokerHeartbeatRequest) -> bool:
    # The epoch is the offset of the batch with the registration, and a batch is read as a whole.
    return request.current_metadata_offset >= broker.epoch


def _transition(
    state: ControllerState,
    request: BrokerHeartbeatRequest,
    granted: BrokerState,
    settings: DecisionSettings,
) -> list[Versioned]:
    image = state.image
    broker = image.cluster.brokers[request.broker_id]
    if granted is BrokerState.UNFENCED:
        leadable = [
            at
            for at in sorted(state.index.leaderless)
            if image.topics.by_id[at.topic_id].partitions[at.partition].directory(broker.id)
            not in (None, *request.offline_log_dirs)
        ]
        return unfence_records(image, broker, leadable, settings)
    if granted is BrokerState.CONTROLLED_SHUTDOWN:
        return controlled_shutdown_records(image, broker, settings)
    if broker.fenced:
        return []
    return fence_records(image, broker, in_isr(image, broker.id), settings)
