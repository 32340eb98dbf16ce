"""A naive model of the image: plain dictionaries, changed in place, one rule per record.

Drawn records are valid on the model; `flatten` converts an image to the model's form.
"""

from typing import Any

from hypothesis import strategies as st

from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.protocol.internal import metadata_cluster as mc
from ottla.protocol.internal import metadata_security as ms
from ottla.protocol.internal import metadata_topics as mt
from ottla.protocol.schema import Message

NAMES = ["a", "b", "c", "d"]
NODES = st.integers(0, 4)
NODE_LISTS = st.lists(NODES, max_size=3, unique=True)
ASSIGNMENTS = st.lists(NODES, min_size=1, max_size=3, unique=True)
UUIDS = st.integers(1, 5).map(lambda n: n.to_bytes(16, "big"))
CORDONED = st.none() | st.lists(UUIDS, unique=True, max_size=2)
MAYBE_NODES = st.none() | NODE_LISTS
PARTS = [
    "features",
    "brokers",
    "controllers",
    "topics",
    "configs",
    "quotas",
    "next_producer_id",
    "acls",
    "scram",
    "tokens",
]

Model = dict[str, Any]


def empty() -> Model:
    model: Model = {part: {} for part in PARTS}
    model["next_producer_id"] = -1
    return model


def flatten(image: Image) -> Model:
    return {
        "features": dict(image.features.levels),
        "brokers": dict(image.cluster.brokers),
        "controllers": dict(image.cluster.controllers),
        "topics": {
            (topic.id, topic.name): {
                number: {f: getattr(p, f) for f in p.__struct_fields__}
                for number, p in topic.partitions.items()
            }
            for topic in image.topics.by_id.values()
        },
        "configs": {key: dict(values) for key, values in image.configs.by_resource.items()},
        "quotas": {key: dict(values) for key, values in image.client_quotas.by_entity.items()},
        "next_producer_id": image.next_producer_id,
        "acls": dict(image.acls),
        "scram": dict(image.scram),
        "tokens": dict(image.delegation_tokens),
    }


def patched(old: Model, delta: Delta) -> Model:
    """Apply a delta to a flattened image."""
    new = {part: dict(old[part]) if part != "next_producer_id" else old[part] for part in PARTS}
    for part, changes in (
        ("features", delta.features),
        ("brokers", delta.brokers),
        ("controllers", delta.controllers),
        ("configs", delta.configs),
        ("quotas", delta.client_quotas),
        ("acls", delta.acls),
        ("scram", delta.scram),
        ("tokens", delta.delegation_tokens),
    ):
        for key, change in changes.items():
            before = (
                dict(change.old) if part in ("configs", "quotas") and change.old else change.old
            )
            assert new[part].get(key) == before and change.old != change.new
            new[part].pop(key, None)
            if change.new is not None:
                is_map = part in ("configs", "quotas")
                new[part][key] = dict(change.new) if is_map else change.new
    if delta.next_producer_id is not None:
        new["next_producer_id"] = delta.next_producer_id.new
    _patch_topics(new["topics"], delta)
    return new


def _patch_topics(topics: Model, delta: Delta) -> None:
    for topic_id, change in delta.topics.items():
        topic = change.topic()
        partitions = dict(topics.pop((topic_id, topic.name), {}))
        for number, partition in change.partitions.items():
            assert partition.old != partition.new
            partitions.pop(number, None)
            if partition.new is not None:
                new = partition.new
                partitions[number] = {f: getattr(new, f) for f in new.__struct_fields__}
        if change.is_deleted():
            assert partitions == {}
        else:
            topics[topic_id, topic.name] = partitions


# -- drawing the next record -----------------------------------------------------------------


def draw_record(data: st.DataObject, model: Model) -> Message:
    """Draw a record that is valid on the model."""
    makers = [_feature, _register_broker, _config, _quota, _ids, _scram, _token, _controller]
    makers += [_topic] * 2 if len(model["topics"]) < len(NAMES) else []
    makers += [_partition] * 3 if model["topics"] else []
    makers += [_remove_topic, _clear_elr] if model["topics"] else []
    makers += [_change] * 5 if any(model["topics"].values()) else []
    makers += [_broker_change, _fence, _unfence, _unregister] if model["brokers"] else []
    makers += [_remove_acl] if model["acls"] else []
    makers += [_acl] if len(model["acls"]) < 5 else []
    makers += [_remove_scram] if model["scram"] else []
    makers += [_remove_token] if model["tokens"] else []
    return data.draw(st.sampled_from(makers))(data.draw, model)


def _feature(draw: Any, model: Model) -> Message:
    if draw(st.booleans()):
        # A controller does not lose cordons by a downgrade; without them every level will do.
        has_cordons = any(b.cordoned_log_dirs is not None for b in model["brokers"].values())
        lowest = MetadataVersion.IBP_4_3_IV0 if has_cordons else MetadataVersion.IBP_4_0_IV1
        levels = st.integers(lowest, MetadataVersion.IBP_4_3_IV0)
        return mc.FeatureLevelRecord("metadata.version", draw(levels))
    return mc.FeatureLevelRecord(draw(st.sampled_from(["group.version", "x"])), draw(NODES))


def _endpoints(draw: Any, kind: Any) -> list[Any]:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    return [kind(name, "h", draw(st.integers(0, 65535)), 0) for name in names]


def _cordoned(draw: Any, model: Model) -> Any:
    """Draw cordoned directories where the metadata.version has them."""
    level = MetadataVersion(model["features"]["metadata.version"])
    return draw(CORDONED) if level.is_cordoned_log_dirs_supported() else None


def _register_broker(draw: Any, model: Model) -> Message:
    return mc.RegisterBrokerRecord(
        broker_id=draw(NODES),
        incarnation_id=draw(UUIDS),
        broker_epoch=draw(NODES),
        end_points=_endpoints(draw, mc.BrokerEndpoint),
        features=[mc.BrokerFeature("metadata.version", 7, 29)],
        rack=draw(st.none() | st.sampled_from(NAMES)),
        fenced=draw(st.booleans()),
        in_controlled_shutdown=draw(st.booleans()),
        log_dirs=draw(st.lists(UUIDS, unique=True)),
        cordoned_log_dirs=_cordoned(draw, model),
    )


def _controller(draw: Any, model: Model) -> Message:
    return mc.RegisterControllerRecord(
        draw(NODES), draw(UUIDS), False, _endpoints(draw, mc.ControllerEndpoint), []
    )


def _broker(draw: Any, model: Model) -> Any:
    return model["brokers"][draw(st.sampled_from(sorted(model["brokers"])))]


def _broker_change(draw: Any, model: Model) -> Message:
    broker = _broker(draw, model)
    return mc.BrokerRegistrationChangeRecord(
        broker.id,
        broker.epoch,
        draw(st.integers(-1, 1)),
        draw(st.integers(0, 1)),
        draw(st.lists(UUIDS, unique=True)),
        _cordoned(draw, model),
    )


def _fence(draw: Any, model: Model) -> Message:
    broker = _broker(draw, model)
    return mc.FenceBrokerRecord(broker.id, broker.epoch)


def _unfence(draw: Any, model: Model) -> Message:
    broker = _broker(draw, model)
    return mc.UnfenceBrokerRecord(broker.id, broker.epoch)


def _unregister(draw: Any, model: Model) -> Message:
    broker = _broker(draw, model)
    return mc.UnregisterBrokerRecord(broker.id, broker.epoch)


def _topic(draw: Any, model: Model) -> Message:
    used = {name for _, name in model["topics"]}
    name = draw(st.sampled_from([n for n in NAMES if n not in used]))
    # An id always belongs to one name; a name may be reused with another id.
    return mt.TopicRecord(name, name.encode() * 8 + draw(st.sampled_from([b"1", b"2"])) * 8)


def _some_topic(draw: Any, model: Model) -> Any:
    return draw(st.sampled_from(sorted(model["topics"])))


def _remove_topic(draw: Any, model: Model) -> Message:
    return mt.RemoveTopicRecord(_some_topic(draw, model)[0])


def _clear_elr(draw: Any, model: Model) -> Message:
    return mt.ClearElrRecord(draw(st.just("") | st.just(_some_topic(draw, model)[1])))


def _partition(draw: Any, model: Model) -> Message:
    replicas = draw(ASSIGNMENTS)
    directories = st.lists(UUIDS, min_size=len(replicas), max_size=len(replicas))
    return mt.PartitionRecord(
        partition_id=draw(NODES),
        topic_id=_some_topic(draw, model)[0],
        replicas=replicas,
        isr=draw(NODE_LISTS),
        removing_replicas=draw(NODE_LISTS),
        adding_replicas=draw(NODE_LISTS),
        leader=draw(st.integers(-1, 4)),
        leader_recovery_state=draw(st.integers(0, 1)),
        leader_epoch=draw(NODES),
        partition_epoch=draw(NODES),
        directories=draw(st.just([]) | directories),
        eligible_leader_replicas=draw(MAYBE_NODES),
        last_known_elr=draw(MAYBE_NODES),
    )


def _change(draw: Any, model: Model) -> Message:
    filled = [key for key in sorted(model["topics"]) if model["topics"][key]]
    key = draw(st.sampled_from(filled))
    number = draw(st.sampled_from(sorted(model["topics"][key])))
    replicas = draw(st.none() | ASSIGNMENTS)
    after = model["topics"][key][number]["replicas"] if replicas is None else replicas
    directories = st.lists(UUIDS, min_size=len(after), max_size=len(after))
    needed = replicas is not None
    return mt.PartitionChangeRecord(
        partition_id=number,
        topic_id=key[0],
        isr=draw(MAYBE_NODES),
        leader=draw(st.integers(-2, 4)),
        replicas=replicas,
        removing_replicas=draw(MAYBE_NODES),
        adding_replicas=draw(MAYBE_NODES),
        leader_recovery_state=draw(st.integers(-1, 1)),
        directories=draw(directories if needed else st.none() | directories),
        eligible_leader_replicas=draw(MAYBE_NODES),
        last_known_elr=draw(MAYBE_NODES),
    )


def _config(draw: Any, model: Model) -> Message:
    return mt.ConfigRecord(
        draw(st.sampled_from([2, 4])),
        draw(st.sampled_from(NAMES)),
        draw(st.sampled_from(["k", "l"])),
        draw(st.none() | st.sampled_from(["1", "2"])),
    )


def _quota(draw: Any, model: Model) -> Message:
    kinds = draw(st.permutations(["user", "client-id"]))
    name = st.none() | st.sampled_from(NAMES)
    entity = [mt.EntityData(kind, draw(name)) for kind in kinds[: draw(st.integers(1, 2))]]
    value = draw(st.sampled_from([1.0, 2.5]))
    return mt.ClientQuotaRecord(
        entity, draw(st.sampled_from(["k", "l"])), value, draw(st.booleans())
    )


def _ids(draw: Any, model: Model) -> Message:
    return mt.ProducerIdsRecord(1, 1, draw(NODES))


def _acl(draw: Any, model: Model) -> Message:
    acl_id = draw(UUIDS.filter(lambda acl_id: acl_id not in model["acls"]))
    return ms.AccessControlEntryRecord(
        acl_id, 2, draw(st.sampled_from(NAMES)), 3, "User:u", "*", 3, 3
    )


def _remove_acl(draw: Any, model: Model) -> Message:
    return ms.RemoveAccessControlEntryRecord(draw(st.sampled_from(sorted(model["acls"]))))


def _scram(draw: Any, model: Model) -> Message:
    return ms.UserScramCredentialRecord(
        draw(st.sampled_from(NAMES)), draw(st.integers(1, 2)), b"s", b"k", b"v", draw(NODES)
    )


def _remove_scram(draw: Any, model: Model) -> Message:
    mechanism, name = draw(st.sampled_from(sorted(model["scram"])))
    return ms.RemoveUserScramCredentialRecord(name, mechanism)


def _token(draw: Any, model: Model) -> Message:
    return ms.DelegationTokenRecord(
        "User:o", "User:r", ["User:x"], 1, 9, draw(NODES), draw(st.sampled_from(NAMES))
    )


def _remove_token(draw: Any, model: Model) -> Message:
    return ms.RemoveDelegationTokenRecord(draw(st.sampled_from(sorted(model["tokens"]))))
