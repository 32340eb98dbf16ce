"""Validates the configuration of a resource: name, keys, values, and how they combine.

The configuration as it would be after a change is validated as a whole, so that two conflicting
keys are found whichever of them was set last. An error names keys and rules; it never contains the
value of a secret, nor that of an unknown key.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ottla.config.checks import group_problems, topic_problems
from ottla.config.generated import TopicConfig
from ottla.config.key_definition import Key, Scope, Update
from ottla.config.key_table import KEYS, base_of_listener_key
from ottla.config.layers import (
    Layers,
    Texts,
    broker_config,
    client_metrics_config,
    effective_broker_value,
    group_config,
    parse_checked,
    shown,
    topic_config,
)
from ottla.config.listeners import REGISTRY_LISTENER
from ottla.config.problems import ConfigError, Problem
from ottla.config.unenforced import STORE_KEYS
from ottla.config.values import BadValue, Type, parse_list
from ottla.controller.decision import Refusal
from ottla.metadata.configs import ConfigResource, ConfigResourceType
from ottla.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from ottla.metadata.image import Image
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.protocol.errors import ErrorCode
from ottla.storage.directory.partition_names import is_topic_name

ALL_BROKERS = ConfigResource(ConfigResourceType.BROKER, "")
MIN_INSYNC_REPLICAS = "min.insync.replicas"
SCHEMA_VALIDATION = ("confluent.key.schema.validation", "confluent.value.schema.validation")
CORDONED_LOG_DIRS = "cordoned.log.dirs"
# A longer one would not fit a string of older request versions.
VALUE_LENGTH_MAX = 32767

_SCOPES = {
    ConfigResourceType.TOPIC: Scope.TOPIC,
    ConfigResourceType.BROKER: Scope.BROKER,
    ConfigResourceType.CLIENT_METRICS: Scope.CLIENT_METRICS,
    ConfigResourceType.GROUP: Scope.GROUP,
}
# Keys of a listener that may be set for all brokers at once.
_CLUSTER_WIDE_LISTENER_KEYS = frozenset(
    {"max.connections", "max.connection.creation.rate", "num.network.threads"}
)


@dataclass(frozen=True, slots=True)
class ConfigContext:
    """The controller's input for configurations beside the image.

    ``static`` is its own file, which is used in place of the brokers' files, as in Kafka;
    ``controller_ids`` are the nodes of the quorum, which can be configured like brokers.
    ``is_forwarded``: a broker has validated a change of its own settings against its file.
    """

    node_id: int
    static: Texts = field(default_factory=dict, repr=False)
    controller_ids: frozenset[int] = frozenset()
    is_forwarded: bool = True

    def layers(self, image: Image) -> Layers:
        """Return the sources of topic and group defaults, highest precedence first."""
        return own_layers(image, self.node_id, self.static)


def own_layers(image: Image, node_id: int, static: Texts) -> Layers:
    """Return the settings of a broker, highest precedence first."""
    own = ConfigResource(ConfigResourceType.BROKER, str(node_id))
    return Layers(image.configs.of(own), image.configs.of(ALL_BROKERS), static)


def key_of(resource_type: int, name: str) -> Key | None:
    """Return the definition of a resource's key; None if it is unknown."""
    scope = _SCOPES.get(ConfigResourceType(resource_type))
    return None if scope is None else KEYS[scope].get(name)


def is_elr_enabled(image: Image) -> bool:
    """Whether partitions keep eligible leader replicas (KIP-966)."""
    return image.features.level(ELIGIBLE_LEADER_REPLICAS_VERSION) > 0


def refuse_configs(
    image: Image, resource: ConfigResource, new: Texts, old: Texts, context: ConfigContext
) -> Refusal | None:
    """Return why a resource may not have the configuration ``new`` after ``old``, or None.

    Whether the resource exists is checked by `refuse_missing`.
    """
    match resource.type:
        case ConfigResourceType.TOPIC:
            return (
                _refuse_topic_name(resource.name)
                or refuse_topic_configs(new, old, context.layers(image))
                or refuse_schema_validation(image, new, old)
            )
        case ConfigResourceType.BROKER:
            return _refuse_broker_name(resource.name) or _refuse_broker(resource.name, new)
        case ConfigResourceType.GROUP:
            return _refuse_group(resource.name, new, context.layers(image))
        case ConfigResourceType.CLIENT_METRICS:
            return _refuse_client_metrics(resource.name, new)
        case _:
            # Logger levels are set on the node itself and leave no record.
            return Refusal(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.type}")


def refuse_missing(
    image: Image, resource: ConfigResource, context: ConfigContext
) -> Refusal | None:
    """Return an error if the resource must exist before it is configured, and does not."""
    if resource.type == ConfigResourceType.TOPIC and image.topics.named(resource.name) is None:
        message = f"The topic '{resource.name}' does not exist."
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    if resource.type == ConfigResourceType.BROKER and resource.name:
        node_id = int(resource.name)
        if node_id not in image.cluster.brokers and node_id not in context.controller_ids:
            return Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Node {node_id} does not exist")
    return None


# -- topics --------------------------------------------------------------------------------------


def refuse_topic_configs(new: Texts, old: Texts, layers: Layers) -> Refusal | None:
    """Return why a topic may not have this configuration. A new topic has an empty ``old``."""
    if unknown := sorted(key for key in new if key not in KEYS[Scope.TOPIC]):
        message = f"Unknown topic config name: {', '.join(unknown)}"
        return Refusal(ErrorCode.INVALID_CONFIG, message)
    try:
        config = topic_config(new, layers)
    except ConfigError as error:
        return Refusal(ErrorCode.INVALID_CONFIG, error.problems[0].in_words_of_kafka())
    problems = [*topic_problems(config), *_remote_problems(config, old, layers)]
    return _refusal(ErrorCode.INVALID_CONFIG, problems)


def refuse_schema_validation(image: Image, new: Texts, old: Texts) -> Refusal | None:
    """Return an error if schema validation is turned on in a cluster without a schema registry."""
    turned_on = [
        key
        for key in SCHEMA_VALIDATION
        if new.get(key, "").lower() == "true" and old.get(key, "").lower() != "true"
    ]
    if not turned_on:
        return None
    if any(REGISTRY_LISTENER in broker.listeners for broker in image.cluster.brokers.values()):
        return None
    return Refusal(
        ErrorCode.INVALID_CONFIG,
        f"{turned_on[0]}=true needs a schema registry, and no broker serves one: set "
        "schema.registry.listeners on every broker",
    )


def _remote_problems(config: TopicConfig, old: Texts, layers: Layers) -> Iterable[Problem]:
    if not config.remote_storage_enable:
        was_enabled = old.get("remote.storage.enable", "").lower() == "true"
        if was_enabled and not config.remote_log_delete_on_disable:
            rule = "must not be turned off without remote.log.delete.on.disable=true"
            yield Problem("remote.storage.enable", "false", rule)
        return
    if not effective_broker_value(layers, "remote.log.storage.system.enable"):
        rule = "needs remote.log.storage.system.enable on the nodes"
        yield Problem("remote.storage.enable", "true", rule)
    if config.remote_log_copy_disable:
        for key, local, whole in (
            ("retention.ms", config.local_retention_ms, config.retention_ms),
            ("retention.bytes", config.local_retention_bytes, config.retention_bytes),
        ):
            if local not in (-2, whole):
                rule = f"must equal {key}={whole} with remote.log.copy.disable"
                yield Problem(f"local.{key}", str(local), rule)


def _refuse_topic_name(name: str) -> Refusal | None:
    if not name:
        message = "There is no default topic configuration; set it on the brokers"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    if not is_topic_name(name):
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"'{name[:300]}' is no valid topic name")
    return None


# -- brokers -------------------------------------------------------------------------------------


_OF_LISTENER = re.compile(r"listener\.name\.[^.]*\.(.*)\Z", re.DOTALL)
# A message repeats names of the request: this many, cut to this length.
_NAMES_SHOWN_MAX = 20
_NAME_SHOWN_MAX = 300
_NODE_ID = re.compile(r"[+-]?0*([0-9]{1,10})\Z")


def node_id_of(name: str) -> int | None:
    """Return the node id that a resource name stands for; None if it is not a 32-bit integer.

    As in Kafka a sign and leading zeros are allowed, so ``01`` is node 1. Digits must be ASCII.
    """
    if _NODE_ID.match(name) is None:
        return None
    # Zeros are stripped before the conversion: thousands of them must not cost a conversion.
    number = int(name.lstrip("+-0") or "0") * (-1 if name.startswith("-") else 1)
    return number if -(1 << 31) <= number < 1 << 31 else None


def _refuse_broker_name(name: str) -> Refusal | None:
    if not name:
        return None
    node_id = node_id_of(name)
    if node_id is None or node_id < 0:
        return Refusal(ErrorCode.INVALID_REQUEST, f"'{name[:300]}' is not a node id")
    return None


def _refuse_broker(name: str, new: Texts) -> Refusal | None:
    return refuse_broker_keys(new, for_all=not name)


def refuse_broker_keys(new: Texts, *, for_all: bool) -> Refusal | None:
    """Return why dynamic keys of one broker, or of all brokers, cannot be set; in Kafka's words."""
    fixed = [name for name in new if _is_read_only(name)]
    stores = [name for name in new if name in STORE_KEYS]
    problems = [problem for item in new.items() if (problem := _broker_problem(*item)) is not None]
    own = [name for name in new if for_all and _is_per_broker(name)]
    invalid = ErrorCode.INVALID_REQUEST
    if fixed:
        return Refusal(invalid, f"Cannot update these configs dynamically: {_set(fixed)}")
    if stores:
        reason = "can be dynamically updated only per-listener using the listener prefix"
        return Refusal(invalid, f"These security configs {reason}: Hash{_set(stores)}")
    if problems:
        return _refusal(invalid, problems)
    if own:
        reason = "at default cluster level, broker id must be specified"
        return Refusal(invalid, f"Cannot update these configs {reason}: {_set(own)}")
    return None


def _set(names: Sequence[str]) -> str:
    """Return names as Kafka prints a set; as many as fit into a message."""
    return f"Set({', '.join(name[:_NAME_SHOWN_MAX] for name in names[:_NAMES_SHOWN_MAX])})"


def _is_read_only(name: str) -> bool:
    key = KEYS[Scope.BROKER].get(name)
    return key is not None and key.update is Update.READ_ONLY


def _is_per_broker(name: str) -> bool:
    """Whether a key cannot be set for all brokers; as in Kafka any key of a listener is such."""
    if (match := _OF_LISTENER.match(name)) is not None:
        return match[1] not in _CLUSTER_WIDE_LISTENER_KEYS
    key = KEYS[Scope.BROKER].get(name)
    return key is not None and key.update is Update.PER_BROKER


def _broker_problem(name: str, text: str) -> Problem | None:
    """Return what is wrong with one value of a broker; unknown keys are accepted and stored."""
    key = KEYS[Scope.BROKER].get(name) or base_of_listener_key(name)
    if key is None:
        return None
    if key.update is Update.READ_ONLY:
        return Problem(name, None, "cannot be changed while the node is running")
    try:
        parse_checked(key, text)
    except BadValue as error:
        return Problem(name, shown(key, text), str(error))
    return None


# -- groups and client metrics -------------------------------------------------------------------


def _refuse_group(name: str, new: Texts, layers: Layers) -> Refusal | None:
    if not name:
        message = "There is no default group configuration; set it on the brokers"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    try:
        config = group_config(new, layers)
    except ConfigError as error:
        return Refusal(ErrorCode.INVALID_CONFIG, error.problems[0].in_words_of_kafka())
    for problem in group_problems(config, broker_config(layers)):
        return Refusal(ErrorCode.INVALID_CONFIG, f"{problem.key} {problem.rule}")
    return None


def _refuse_client_metrics(name: str, new: Texts) -> Refusal | None:
    if not name:
        return Refusal(ErrorCode.INVALID_REQUEST, "The name of a subscription must not be empty")
    table = KEYS[Scope.CLIENT_METRICS]
    if unknown := sorted(key for key in new if key not in table):
        message = f"Unknown client metrics configuration: {', '.join(unknown)}"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    try:
        client_metrics_config(new)
    except ConfigError as error:
        # Kafka answers INVALID_REQUEST for an interval out of bounds, and INVALID_CONFIG otherwise.
        of_interval = any(problem.key == "interval.ms" for problem in error.problems)
        is_number = of_interval and new["interval.ms"].strip().lstrip("+-").isdigit()
        code = ErrorCode.INVALID_REQUEST if is_number else ErrorCode.INVALID_CONFIG
        return Refusal(code, str(error))
    return None


# -- min.insync.replicas with eligible leader replicas (KIP-966) ---------------------------------


def refuse_min_insync_change(
    image: Image, resource: ConfigResource, changes: Mapping[str, str | None]
) -> Refusal | None:
    """Return why min.insync.replicas may not change this way while ELR is enabled.

    All brokers must then agree on it: it is one value for the cluster, and it stays set.
    """
    if resource.type != ConfigResourceType.BROKER or MIN_INSYNC_REPLICAS not in changes:
        return None
    if not is_elr_enabled(image):
        return None
    if resource.name:
        message = f"{MIN_INSYNC_REPLICAS} of one broker cannot change while ELR is enabled"
        return Refusal(ErrorCode.INVALID_CONFIG, message)
    if changes[MIN_INSYNC_REPLICAS] is None:
        message = f"{MIN_INSYNC_REPLICAS} of all brokers cannot be removed while ELR is enabled"
        return Refusal(ErrorCode.INVALID_CONFIG, message)
    return None


# -- cordoned.log.dirs (KIP-1066) ----------------------------------------------------------------


def refuse_cordon_change(
    image: Image,
    resource: ConfigResource,
    changes: Mapping[str, str | None],
    context: ConfigContext,
) -> Refusal | None:
    """Return why cordoned.log.dirs may not change this way.

    Only the broker knows its directories: a controller asked directly can only lift cordons.
    """
    value = changes.get(CORDONED_LOG_DIRS)
    if resource.type != ConfigResourceType.BROKER or value is None:
        return None
    if not image.metadata_version().is_cordoned_log_dirs_supported():
        needed = MetadataVersion.IBP_4_3_IV0
        message = f"{CORDONED_LOG_DIRS} cannot be set: it needs metadata.version {needed} or newer"
        return Refusal(ErrorCode.INVALID_CONFIG, message)
    current = image.configs.of(resource).get(CORDONED_LOG_DIRS, "")
    if not context.is_forwarded and set(parse_list(value)) - set(parse_list(current)):
        message = (
            f"A controller can only remove items of {CORDONED_LOG_DIRS}; "
            "send a change that adds some to the broker"
        )
        return Refusal(ErrorCode.INVALID_CONFIG, message)
    return None


def refuse_long_value(changes: Mapping[str, str | None]) -> Refusal | None:
    """Return an error if a value is too long to be stored."""
    for name, value in changes.items():
        if value is not None and len(value) > VALUE_LENGTH_MAX:
            message = f"The value of {name[:300]} is longer than {VALUE_LENGTH_MAX}"
            return Refusal(ErrorCode.INVALID_CONFIG, message)
    return None


def is_list(resource_type: int, name: str) -> bool:
    """Return whether a key holds a list, so that items can be appended and subtracted.

    Kafka's controller does not know the types of client metrics keys and treats none as a list.
    """
    if resource_type == ConfigResourceType.CLIENT_METRICS:
        return False
    key = key_of(resource_type, name)
    return key is not None and key.type is Type.LIST


def _refusal(code: ErrorCode, problems: list[Problem]) -> Refusal | None:
    return Refusal(code, "; ".join(map(str, problems))) if problems else None
