"""Replays records about nodes and features."""

from collections.abc import Iterable, Mapping

from immutables import Map
from msgspec.structs import replace

from ottla.metadata.answered_requests import AnsweredRequest
from ottla.metadata.features import KRAFT_VERSION
from ottla.metadata.image import Features, Image
from ottla.metadata.metadata_versions import METADATA_VERSION, MINIMUM_VERSION, MetadataVersion
from ottla.metadata.registrations import (
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    VersionRange,
)
from ottla.metadata.replay_fault import ReplayFault
from ottla.metadata.touched import Touched
from ottla.protocol.internal.metadata_cluster import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from ottla.protocol.types import ZERO_UUID, Uuid

# A byte for set, unchanged or cleared. Only a new registration ends a controlled shutdown.
_FENCING: Mapping[int, bool | None] = {1: True, 0: None, -1: False}
_SHUTDOWN: Mapping[int, bool | None] = {1: True, 0: None}


def register_broker(image: Image, record: RegisterBrokerRecord, touched: Touched) -> Image:
    """Register a broker, replacing its earlier registration."""
    registration = BrokerRegistration(
        id=record.broker_id,
        epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        listeners=_listeners(record.end_points),
        features=_features(record.features),
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        log_dirs=tuple(sorted(record.log_dirs)),
        is_migrating_zk_broker=record.is_migrating_zk_broker,
        cordoned_log_dirs=_cordoned(record.cordoned_log_dirs, None),
    )
    return _with_broker(image, registration, touched)


def unregister_broker(image: Image, record: UnregisterBrokerRecord, touched: Touched) -> Image:
    """Unregister a broker; partitions keep it as a replica."""
    gone = _broker(image, record.broker_id, record.broker_epoch)
    touched.brokers[gone.id] = None
    brokers = image.cluster.brokers.delete(gone.id)
    return replace(image, cluster=replace(image.cluster, brokers=brokers))


def fence_broker(image: Image, record: FenceBrokerRecord, touched: Touched) -> Image:
    """Fence a broker."""
    broker = _broker(image, record.id, record.epoch)
    return _with_broker(image, replace(broker, fenced=True), touched)


def unfence_broker(image: Image, record: UnfenceBrokerRecord, touched: Touched) -> Image:
    """Unfence a broker."""
    broker = _broker(image, record.id, record.epoch)
    return _with_broker(image, replace(broker, fenced=False), touched)


def change_broker(image: Image, record: BrokerRegistrationChangeRecord, touched: Touched) -> Image:
    """Change the given parts of a registration; keep the rest."""
    broker = _broker(image, record.broker_id, record.broker_epoch)
    changed = replace(
        broker,
        fenced=_switched(_FENCING, record.fenced, broker.fenced),
        in_controlled_shutdown=_switched(
            _SHUTDOWN, record.in_controlled_shutdown, broker.in_controlled_shutdown
        ),
        log_dirs=tuple(sorted(record.log_dirs)) if record.log_dirs else broker.log_dirs,
        cordoned_log_dirs=_cordoned(record.cordoned_log_dirs, broker.cordoned_log_dirs),
    )
    return _with_broker(image, changed, touched)


def register_controller(image: Image, record: RegisterControllerRecord, touched: Touched) -> Image:
    """Register a controller, replacing its earlier registration."""
    registration = ControllerRegistration(
        id=record.controller_id,
        incarnation_id=record.incarnation_id,
        listeners=_listeners(record.end_points),
        features=_features(record.features),
        zk_migration_ready=record.zk_migration_ready,
    )
    touched.controllers[registration.id] = None
    controllers = image.cluster.controllers.set(registration.id, registration)
    return replace(image, cluster=replace(image.cluster, controllers=controllers))


def unregister_controller(
    image: Image, record: UnregisterControllerRecord, touched: Touched
) -> Image:
    """Remove the registration of a controller."""
    if record.controller_id not in image.cluster.controllers:
        raise ReplayFault(f"controller {record.controller_id} is not registered")
    touched.controllers[record.controller_id] = None
    controllers = image.cluster.controllers.delete(record.controller_id)
    return replace(image, cluster=replace(image.cluster, controllers=controllers))


def feature_level(image: Image, record: FeatureLevelRecord, touched: Touched) -> Image:
    """Finalize a feature at a level; level 0 removes it.

    kraft.version is ignored: it belongs to the voters' control records, and a record of it here
    predates them.
    """
    if record.name == KRAFT_VERSION:
        return image
    levels = image.features.levels
    if record.name == METADATA_VERSION:
        levels = levels.set(record.name, _metadata_version(record.feature_level))
    elif record.feature_level:
        levels = levels.set(record.name, record.feature_level)
    elif record.name in levels:
        levels = levels.delete(record.name)
    touched.features[record.name] = None
    return replace(image, features=Features(levels))


def no_op(image: Image, record: NoOpRecord, touched: Touched) -> Image:
    """Change nothing, except to store an answered request if the record contains one."""
    if record.request_id == ZERO_UUID:
        return image
    request = AnsweredRequest(record.request_api_key, record.reply)
    return replace(image, answered=image.answered.with_request(record.request_id, request))


def _metadata_version(level: int) -> int:
    if level not in MetadataVersion._value2member_map_:
        raise ReplayFault(
            f"the cluster has finalized metadata.version {level}, which this release does not "
            f"support; it supports {int(MINIMUM_VERSION)} to {int(max(MetadataVersion))}"
        )
    return level


def _broker(image: Image, broker_id: int, epoch: int) -> BrokerRegistration:
    broker = image.cluster.brokers.get(broker_id)
    if broker is None:
        raise ReplayFault(f"broker {broker_id} is not registered")
    if broker.epoch != epoch:
        raise ReplayFault(f"broker {broker_id} is at epoch {broker.epoch}, not {epoch}")
    return broker


def _with_broker(image: Image, broker: BrokerRegistration, touched: Touched) -> Image:
    touched.brokers[broker.id] = None
    brokers = image.cluster.brokers.set(broker.id, broker)
    return replace(image, cluster=replace(image.cluster, brokers=brokers))


def _switched(changes: Mapping[int, bool | None], change: int, old: bool) -> bool:
    if change not in changes:
        raise ReplayFault(f"change {change} of a broker's registration is unknown")
    new = changes[change]
    return old if new is None else new


def _cordoned(recorded: list[Uuid] | None, old: tuple[Uuid, ...] | None) -> tuple[Uuid, ...] | None:
    return old if recorded is None else tuple(recorded)


def _listeners(endpoints: Iterable[BrokerEndpoint | ControllerEndpoint]) -> Map[str, Endpoint]:
    return Map((e.name, Endpoint(e.host, e.port, e.security_protocol)) for e in endpoints)


def _features(features: Iterable[BrokerFeature | ControllerFeature]) -> Map[str, VersionRange]:
    return Map(
        (f.name, VersionRange(f.min_supported_version, f.max_supported_version)) for f in features
    )
