"""The configuration of topics and brokers that decisions need."""

import msgspec

from ottla.config.key_definition import Scope
from ottla.config.layers import Layers, effective_broker_value, effective_value
from ottla.config.values import Value
from ottla.controller.config_rules import ConfigContext
from ottla.metadata.configs import ConfigResource, ConfigResourceType
from ottla.metadata.image import Image
from ottla.metadata.topics import Topic
from ottla.protocol.types import Uuid


class DecisionSettings(msgspec.Struct, frozen=True):
    """The controller's own configuration; topics inherit from ``configs``.

    ``inter_broker_listener`` is the name of the listener whose advertised host tells which brokers
    run on one machine.
    """

    configs: ConfigContext
    partitions_default: int = 1
    replication_factor_default: int = 1
    is_topic_deletion_enabled: bool = True
    inter_broker_listener: str | None = None


def settings_of(configs: ConfigContext) -> DecisionSettings:
    """Return the settings that a node's own configuration results in."""
    layers = Layers(static=configs.static)
    return DecisionSettings(
        configs,
        partitions_default=_int(effective_broker_value(layers, "num.partitions")),
        replication_factor_default=_int(
            effective_broker_value(layers, "default.replication.factor")
        ),
        is_topic_deletion_enabled=bool(effective_broker_value(layers, "delete.topic.enable")),
        inter_broker_listener=_inter_broker_listener(layers),
    )


def _inter_broker_listener(layers: Layers) -> str | None:
    name = effective_broker_value(layers, "inter.broker.listener.name")
    name = name or effective_broker_value(layers, "security.inter.broker.protocol")
    return str(name).upper() if name else None


class TopicPolicies:
    """The configuration of the topics of one image, each looked up once.

    For the duration of one decision: it holds a reference to its image.
    """

    def __init__(self, image: Image, settings: DecisionSettings) -> None:
        self._image = image
        self._layers = settings.configs.layers(image)
        self._found: dict[tuple[Uuid, str], Value | None] = {}

    def min_isr(self, topic: Topic) -> int:
        """Return min.insync.replicas, at most the topic's number of replicas."""
        configured = _int(self._value(topic, "min.insync.replicas"))
        first = topic.partitions.get(0)
        return configured if first is None else min(configured, len(first.replicas))

    def is_unclean_enabled(self, topic: Topic) -> bool:
        """Return whether a replica that lacks records may lead if no other is alive."""
        return bool(self._value(topic, "unclean.leader.election.enable"))

    def _value(self, topic: Topic, name: str) -> Value | None:
        key = (topic.id, name)
        if key not in self._found:
            resource = ConfigResource(ConfigResourceType.TOPIC, topic.name)
            own = self._image.configs.of(resource)
            self._found[key] = effective_value(Scope.TOPIC, name, own, self._layers)
        return self._found[key]


def _int(value: Value | None) -> int:
    assert isinstance(value, int)
    return value
