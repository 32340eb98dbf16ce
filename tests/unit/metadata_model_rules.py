"""The effect of each record on the naive model of `metadata_model`, implemented a second time."""

from typing import Any

from ottla.metadata import access, registrations
from ottla.protocol.schema import Message
from ottla.security.acl import Acl

Model = dict[str, Any]


def play(model: Model, record: Message) -> None:
    """Apply a record to the model."""
    RULES[type(record).__name__](model, record)


def _put(table: Model, key: Any, name: str, value: Any) -> None:
    values = {k: v for k, v in {**table.get(key, {}), name: value}.items() if v is not None}
    table.pop(key, None)
    if values:
        table[key] = values


def _feature(model: Model, r: Any) -> None:
    model["features"].pop(r.name, None)
    if r.feature_level:
        model["features"][r.name] = r.feature_level


def _listeners(endpoints: Any) -> Any:
    made = {e.name: registrations.Endpoint(e.host, e.port, e.security_protocol) for e in endpoints}
    return registrations.Map(made)


def _ranges(features: Any) -> Any:
    return registrations.Map(
        {
            f.name: registrations.VersionRange(f.min_supported_version, f.max_supported_version)
            for f in features
        }
    )


def _register_broker(model: Model, r: Any) -> None:
    model["brokers"][r.broker_id] = registrations.BrokerRegistration(
        r.broker_id,
        r.broker_epoch,
        r.incarnation_id,
        _listeners(r.end_points),
        _ranges(r.features),
        r.rack,
        r.fenced,
        r.in_controlled_shutdown,
        tuple(sorted(r.log_dirs)),
        cordoned_log_dirs=None if r.cordoned_log_dirs is None else tuple(r.cordoned_log_dirs),
    )


def _register_controller(model: Model, r: Any) -> None:
    model["controllers"][r.controller_id] = registrations.ControllerRegistration(
        r.controller_id, r.incarnation_id, _listeners(r.end_points), _ranges(r.features)
    )


def _change_broker(model: Model, broker_id: int, **changes: Any) -> None:
    old = model["brokers"][broker_id]
    fields = {f: getattr(old, f) for f in old.__struct_fields__}
    model["brokers"][broker_id] = registrations.BrokerRegistration(**{**fields, **changes})


def _registration_change(model: Model, r: Any) -> None:
    changes: Model = {}
    if r.fenced:
        changes["fenced"] = r.fenced == 1
    if r.in_controlled_shutdown:
        changes["in_controlled_shutdown"] = r.in_controlled_shutdown == 1
    if r.log_dirs:
        changes["log_dirs"] = tuple(sorted(r.log_dirs))
    if r.cordoned_log_dirs is not None:
        changes["cordoned_log_dirs"] = tuple(r.cordoned_log_dirs)
    _change_broker(model, r.broker_id, **changes)


def _key(model: Model, topic_id: bytes) -> Any:
    return next(key for key in model["topics"] if key[0] == topic_id)


def _remove_topic(model: Model, r: Any) -> None:
    key = _key(model, r.topic_id)
    del model["topics"][key]
    model["configs"].pop((2, key[1]), None)


def _partition(model: Model, r: Any) -> None:
    model["topics"][_key(model, r.topic_id)][r.partition_id] = {
        "replicas": tuple(r.replicas),
        "isr": tuple(r.isr),
        "leader": r.leader,
        "leader_epoch": r.leader_epoch,
        "partition_epoch": r.partition_epoch,
        "directories": tuple(r.directories) or (bytes(16),) * len(r.replicas),
        "leader_recovery_state": r.leader_recovery_state,
        "adding_replicas": tuple(r.adding_replicas),
        "removing_replicas": tuple(r.removing_replicas),
        "elr": tuple(r.eligible_leader_replicas or []),
        "last_known_elr": tuple(r.last_known_elr or []),
    }


def _partition_change(model: Model, r: Any) -> None:
    partition = model["topics"][_key(model, r.topic_id)][r.partition_id]
    partition["partition_epoch"] += 1
    if r.leader != -2:
        partition["leader"] = r.leader
        partition["leader_epoch"] += 1
    if r.leader_recovery_state != -1:
        partition["leader_recovery_state"] = r.leader_recovery_state
    for ours, theirs in (
        ("replicas", r.replicas),
        ("isr", r.isr),
        ("directories", r.directories),
        ("adding_replicas", r.adding_replicas),
        ("removing_replicas", r.removing_replicas),
        ("elr", r.eligible_leader_replicas),
        ("last_known_elr", r.last_known_elr),
    ):
        if theirs is not None:
            partition[ours] = tuple(theirs)


def _clear_elr(model: Model, r: Any) -> None:
    for (_, name), partitions in model["topics"].items():
        for partition in partitions.values():
            had_any = partition["elr"] or partition["last_known_elr"]
            if had_any and r.topic_name in ("", name):
                partition["elr"] = partition["last_known_elr"] = ()
                partition["partition_epoch"] += 1


def _quota(model: Model, r: Any) -> None:
    entity = tuple(sorted((e.entity_type, e.entity_name) for e in r.entity))
    _put(model["quotas"], entity, r.key, None if r.remove else r.value)


def _acl(model: Model, r: Any) -> None:
    fields = [getattr(r, f) for f in Acl.__struct_fields__]
    model["acls"][r.id] = Acl(*fields)


def _scram(model: Model, r: Any) -> None:
    credential = access.ScramCredential(r.salt, r.stored_key, r.server_key, r.iterations)
    model["scram"][r.mechanism, r.name] = credential


def _token(model: Model, r: Any) -> None:
    fields = {f: getattr(r, f) for f in access.DelegationToken.__struct_fields__}
    fields["renewers"] = tuple(r.renewers)
    model["tokens"][r.token_id] = access.DelegationToken(**fields)


RULES: dict[str, Any] = {
    "FeatureLevelRecord": _feature,
    "RegisterBrokerRecord": _register_broker,
    "RegisterControllerRecord": _register_controller,
    "UnregisterBrokerRecord": lambda m, r: m["brokers"].pop(r.broker_id),
    "FenceBrokerRecord": lambda m, r: _change_broker(m, r.id, fenced=True),
    "UnfenceBrokerRecord": lambda m, r: _change_broker(m, r.id, fenced=False),
    "BrokerRegistrationChangeRecord": _registration_change,
    "TopicRecord": lambda m, r: m["topics"].__setitem__((r.topic_id, r.name), {}),
    "RemoveTopicRecord": _remove_topic,
    "PartitionRecord": _partition,
    "PartitionChangeRecord": _partition_change,
    "ClearElrRecord": _clear_elr,
    "ConfigRecord": lambda m, r: _put(
        m["configs"], (r.resource_type, r.resource_name), r.name, r.value
    ),
    "ClientQuotaRecord": _quota,
    "ProducerIdsRecord": lambda m, r: m.__setitem__("next_producer_id", r.next_producer_id),
    "AccessControlEntryRecord": _acl,
    "RemoveAccessControlEntryRecord": lambda m, r: m["acls"].pop(r.id),
    "UserScramCredentialRecord": _scram,
    "RemoveUserScramCredentialRecord": lambda m, r: m["scram"].pop((r.mechanism, r.name)),
    "DelegationTokenRecord": _token,
    "RemoveDelegationTokenRecord": lambda m, r: m["tokens"].pop(r.token_id),
}
