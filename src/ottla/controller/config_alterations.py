"""AlterConfigs and IncrementalAlterConfigs: the records for a configuration change.

Each resource of a request succeeds or fails on its own, with all its keys together. A key whose
value does not change is not written, except for a broker: brokers take the record as the signal to
reload certificates and the like. If eligible leader replicas are enabled, a change of
min.insync.replicas clears all of them (KIP-966), in the same batch.
"""

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from ottla.config.values import to_text
from ottla.controller.config_rules import (
    MIN_INSYNC_REPLICAS,
    ConfigContext,
    is_elr_enabled,
    is_list,
    key_of,
    node_id_of,
    refuse_configs,
    refuse_cordon_change,
    refuse_long_value,
    refuse_min_insync_change,
    refuse_missing,
)
from ottla.controller.decision import RECORDS_MAX, Decision, Refusal
from ottla.metadata.configs import ConfigResource, ConfigResourceType
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_topics import ClearElrRecord, ConfigRecord
from ottla.protocol.messages import alter_configs, incremental_alter_configs
from ottla.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

Changes = dict[str, str | None]
"""The new value by key; None removes it. Unchanged keys are not included."""

AnyResource = TypeVar(
    "AnyResource",
    incremental_alter_configs.AlterConfigsResource,
    alter_configs.AlterConfigsResource,
)
AnyResourceResponse = TypeVar(
    "AnyResourceResponse",
    alter_configs.AlterConfigsResourceResponse,
    incremental_alter_configs.AlterConfigsResourceResponse,
)


class Operation(enum.IntEnum):
    """The operations of IncrementalAlterConfigs, by Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Outcome(msgspec.Struct, frozen=True):
    """The outcome for one resource: its records, or why there are none."""

    resource: ConfigResource
    records: list[Versioned]
    refusal: Refusal | None = None


def decide_incremental_alter_configs(
    image: Image, request: IncrementalAlterConfigsRequest, context: ConfigContext
) -> Decision[IncrementalAlterConfigsResponse]:
    """Change the given keys, and keep the others (KIP-339)."""
    outcomes = _outcomes(image, request.resources, incremental_changes, context)
    responses = _responses(incremental_alter_configs.AlterConfigsResourceResponse, outcomes)
    records = _records(image, outcomes, request.validate_only)
    return Decision(records, IncrementalAlterConfigsResponse(responses=responses))


def decide_alter_configs(
    image: Image, request: AlterConfigsRequest, context: ConfigContext
) -> Decision[AlterConfigsResponse]:
    """Set the given keys, and remove all others of the resource."""
    outcomes = _outcomes(image, request.resources, whole_changes, context)
    responses = _responses(alter_configs.AlterConfigsResourceResponse, outcomes)
    records = _records(image, outcomes, request.validate_only)
    return Decision(records, AlterConfigsResponse(responses=responses))


def _responses(
    make: Callable[..., AnyResourceResponse], outcomes: Iterable[Outcome]
) -> list[AnyResourceResponse]:
    return [
        make(
            error_code=o.refusal.code if o.refusal else ErrorCode.NONE,
            error_message=o.refusal.message if o.refusal else None,
            resource_type=o.resource.type,
            resource_name=o.resource.name,
        )
        for o in outcomes
    ]


def incremental_changes(
    resource: incremental_alter_configs.AlterConfigsResource, old: Mapping[str, str]
) -> Changes | Refusal:
    """Return the changes that an IncrementalAlterConfigs makes to the keys set so far."""
    return refuse_operations(resource.configs) or _incremental(
        resource.resource_type, resource.configs, old
    )


def whole_changes(
    resource: alter_configs.AlterConfigsResource, old: Mapping[str, str]
) -> Changes | Refusal:
    """Return the changes that an AlterConfigs makes to the keys set so far."""
    refusal = refuse_missing_values(resource)
    if refusal is not None:
        return refusal
    new: Changes = {c.name: c.value for c in resource.configs}
    return new | {name: None for name in sorted(old) if name not in new}


# -- one request ---------------------------------------------------------------------------------


def _outcomes(
    image: Image,
    resources: Iterable[AnyResource],
    changes_of: Callable[[AnyResource, Mapping[str, str]], Changes | Refusal],
    context: ConfigContext,
) -> list[Outcome]:
    resources = list(resources)
    named = [ConfigResource(r.resource_type, r.resource_name) for r in resources]
    times = Counter(map(canonical, named))
    outcomes = []
    for resource, requested in zip(named, resources, strict=True):
        keys = [config.name for config in requested.configs]
        refusal = _refuse_shape(resource, times[canonical(resource)], keys)
        if refusal is not None:
            outcomes.append(Outcome(resource, [], refusal))
            continue
        changes = changes_of(requested, image.configs.of(canonical(resource)))
        outcomes.append(_outcome(image, resource, changes, context))
    return _bounded(outcomes)


def canonical(resource: ConfigResource) -> ConfigResource:
    """Return the resource under its one spelling of a node id: ``01`` is ``1``."""
    node_id = node_id_of(resource.name) if resource.type == ConfigResourceType.BROKER else None
    return resource if node_id is None else ConfigResource(resource.type, str(node_id))


def _refuse_shape(resource: ConfigResource, times: int, keys: list[str]) -> Refusal | None:
    if resource.type not in ConfigResourceType._value2member_map_:
        message = f"Unknown resource type {resource.type}"
        return Refusal(ErrorCode.UNSUPPORTED_VERSION, message)
    return refuse_repetition(times, keys)


def refuse_repetition(times: int, keys: Iterable[str]) -> Refusal | None:
    """Return an error if a request names a resource, or a resource a key, more than once."""
    if times > 1:
        return Refusal(ErrorCode.INVALID_REQUEST, "A resource may occur only once in a request")
    if any(count > 1 for count in Counter(keys).values()):
        message = "Error due to duplicate config keys"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    return None


def _outcome(
    image: Image, resource: ConfigResource, changes: Changes | Refusal, context: ConfigContext
) -> Outcome:
    if isinstance(changes, Refusal):
        return Outcome(resource, [], changes)
    stored = canonical(resource)
    old = image.configs.of(stored)
    if resource.type != ConfigResourceType.BROKER:
        changes = {name: value for name, value in changes.items() if old.get(name) != value}
    new = {name: value for name, value in (dict(old) | changes).items() if value is not None}
    refusal = (
        refuse_min_insync_change(image, resource, changes)
        or refuse_cordon_change(image, stored, changes, context)
        or refuse_long_value(changes)
        or refuse_configs(image, resource, new, old, context)
        or refuse_missing(image, resource, context)
    )
    if refusal is not None:
        return Outcome(resource, [], refusal)
    return Outcome(resource, [config_record(stored, *change) for change in changes.items()])


def _bounded(outcomes: list[Outcome]) -> list[Outcome]:
    """Reject a whole request that would write too many records."""
    if sum(len(outcome.records) for outcome in outcomes) <= RECORDS_MAX:
        return outcomes
    refusal = Refusal(ErrorCode.POLICY_VIOLATION, f"More than {RECORDS_MAX} changes in a request")
    return [Outcome(o.resource, [], o.refusal or refusal) for o in outcomes]


def _records(image: Image, outcomes: list[Outcome], validate_only: bool) -> list[Versioned]:
    if validate_only:
        return []
    records = [record for outcome in outcomes for record in outcome.records]
    return records + clear_elr_records(image, records)


def config_record(resource: ConfigResource, name: str, value: str | None) -> Versioned:
    """Return the record that sets a key, or removes it if ``value`` is None."""
    record = ConfigRecord(
        resource_type=resource.type, resource_name=resource.name, name=name, value=value
    )
    return Versioned(record, 0)


def clear_elr_records(image: Image, records: Iterable[Versioned]) -> list[Versioned]:
    """Return the records that changes of min.insync.replicas among ``records`` require.

    Replicas became eligible under the old value and may lack records acknowledged under the new
    one. A change for the brokers affects every topic.
    """
    if not is_elr_enabled(image):
        return []
    cleared = []
    for record in records:
        message = record.message
        if isinstance(message, ConfigRecord) and message.name == MIN_INSYNC_REPLICAS:
            is_topic = message.resource_type == ConfigResourceType.TOPIC
            topic_name = message.resource_name if is_topic else ""
            cleared.append(Versioned(ClearElrRecord(topic_name=topic_name), 0))
    return cleared


# -- operations ----------------------------------------------------------------------------------


def refuse_operations(configs: Iterable[AlterableConfig]) -> Refusal | None:
    """Return an error if an operation is unknown or lacks its value."""
    for config in configs:
        if config.config_operation not in Operation._value2member_map_:
            message = f"Unknown operation {config.config_operation} on {config.name}"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
    return _refuse_null(
        c.name for c in configs if c.value is None and c.config_operation != Operation.DELETE
    )


def refuse_missing_values(
    resource: alter_configs.AlterConfigsResource | incremental_alter_configs.AlterConfigsResource,
) -> Refusal | None:
    """Return an error if a key that is not deleted has no value."""
    if isinstance(resource, alter_configs.AlterConfigsResource):
        return _refuse_null(c.name for c in resource.configs if c.value is None)
    delete = Operation.DELETE
    return _refuse_null(
        c.name for c in resource.configs if c.value is None and c.config_operation != delete
    )


def _refuse_null(names: Iterable[str]) -> Refusal | None:
    missing = list(names)
    if not missing:
        return None
    return Refusal(
        ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(missing)}"
    )


def _incremental(
    resource_type: int, configs: Iterable[AlterableConfig], old: Mapping[str, str]
) -> Changes | Refusal:
    changes: Changes = {}
    for config in configs:
        operation, value = Operation(config.config_operation), config.value
        if operation is Operation.DELETE:
            changes[config.name] = None
            continue
        assert value is not None, "null values are rejected earlier"
        if operation is Operation.SET:
            changes[config.name] = value
            continue
        if not is_list(resource_type, config.name):
            message = f"Can't {operation.name} to key {config.name} because its type is not LIST."
            return Refusal(ErrorCode.INVALID_CONFIG, message)
        items = _items_now(resource_type, config.name, old)
        changes[config.name] = ",".join(_combined(operation, items, _split(value)))
    return changes


def _items_now(resource_type: int, name: str, old: Mapping[str, str]) -> list[str]:
    """Return the items that a change starts from: those set, else those of the key's default.

    As in Kafka, that is the default of the key itself, not the value inherited from the brokers.
    """
    text = old.get(name)
    if text is None:
        key = key_of(resource_type, name)
        text = None if key is None else to_text(key.default_value)
    return [item for item in _split(text or "") if item]


def _combined(operation: Operation, items: list[str], operands: list[str]) -> list[str]:
    for operand in operands:
        if operation is Operation.APPEND and operand not in items:
            items.append(operand)
        elif operation is Operation.SUBTRACT and operand in items:
            items.remove(operand)
    return items


def _split(text: str) -> list[str]:
    """Split at commas as Java does: trailing empty items are dropped, unless all are empty."""
    items = text.split(",")
    while len(items) > 1 and not items[-1]:
        items.pop()
    return items
