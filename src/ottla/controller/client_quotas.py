"""AlterClientQuotas and DescribeClientQuotas (KIP-546, KIP-612).

A quota belongs to a user, a client id, both, or an IP address, which determines the keys it may
have. An address is used as written: a decision does no DNS lookup, so host names, which Kafka
resolves, are rejected here.
"""

import ipaddress
from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType

from ottla.controller.decision import (
    RECORDS_MAX,
    ROWS_PER_STEP,
    Decision,
    Refusal,
    Steps,
    finish,
)
from ottla.metadata.configs import QuotaEntity, quota_entity
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_topics import ClientQuotaRecord
from ottla.protocol.internal.metadata_topics import EntityData as RecordEntity
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntryData,
    ResponseEntityData,
    ResponseEntryData,
)
from ottla.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

# The greatest integer a key may hold; None if any number is allowed.
USER_AND_CLIENT_KEYS: Mapping[str, int | None] = MappingProxyType(
    {
        "producer_byte_rate": LONG_MAX,
        "consumer_byte_rate": LONG_MAX,
        "request_percentage": None,
        "controller_mutation_rate": None,
    }
)
IP_KEYS: Mapping[str, int | None] = MappingProxyType({"connection_creation_rate": INT_MAX})
# How far from an integer a value may be and still count as one, as in Kafka.
FRACTION_MAX = 1e-6

# The order in which Kafka returns the limits of one entity: with up to three of them, and more.
_FEW = 3
_ORDER_OF_FEW = (
    *("connection_creation_rate", "consumer_byte_rate", "controller_mutation_rate"),
    *("request_percentage", "producer_byte_rate"),
)
_ORDER_OF_MANY = (
    *("producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate"),
    "request_percentage",
)

MATCH_EXACT = 0
MATCH_DEFAULT = 1
MATCH_SPECIFIED = 2


def decide_alter_client_quotas(
    image: Image, request: AlterClientQuotasRequest
) -> Decision[AlterClientQuotasResponse]:
    """Set and remove limits; each entity on its own, with all of its keys together.

    An entity that occurs twice has one result, an error; as in Kafka, the first occurrence is
    applied all the same.
    """
    return finish(alter_client_quotas_steps(image, request))


def alter_client_quotas_steps(
    image: Image, request: AlterClientQuotasRequest
) -> Steps[Decision[AlterClientQuotasResponse]]:
    """Decide as `decide_alter_client_quotas` does, in steps."""
    records: list[Versioned] = []
    results: dict[QuotaEntity, Refusal | None] = {}
    for count, entry in enumerate(request.entries, 1):
        if not count % ROWS_PER_STEP:
            yield
        entity = quota_entity((part.entity_type, part.entity_name) for part in entry.entity)
        refusal = _refuse_entry(entry, entity, results)
        results[entity] = refusal
        if refusal is None:
            records += _changes(image, entity, entry.ops)
    if len(records) > RECORDS_MAX:
        too_many = Refusal(ErrorCode.POLICY_VIOLATION, f"More than {RECORDS_MAX} changes")
        results = dict.fromkeys(results, too_many)
        records = []
    yield
    entries = [_response_entry(entity, refusal) for entity, refusal in results.items()]
    kept = [] if request.validate_only else records
    return Decision(kept, AlterClientQuotasResponse(entries=entries))


def _response_entry(entity: QuotaEntity, refusal: Refusal | None) -> ResponseEntryData:
    return ResponseEntryData(
        error_code=refusal.code if refusal else ErrorCode.NONE,
        error_message=refusal.message if refusal else None,
        entity=[
            ResponseEntityData(entity_type=kind, entity_name=name)
            for kind, name in sorted(entity, key=lambda part: part[0] == IP)
        ],
    )


def _changes(image: Image, entity: QuotaEntity, ops: Iterable[OpData]) -> list[Versioned]:
    limits = image.client_quotas.of(entity)
    records = []
    for op in ops:
        parts = [RecordEntity(entity_type=kind, entity_name=name) for kind, name in entity]
        if op.remove and op.key in limits:
            records.append(ClientQuotaRecord(entity=parts, key=op.key, remove=True))
        elif not op.remove and limits.get(op.key) != op.value:
            records.append(ClientQuotaRecord(entity=parts, key=op.key, value=op.value))
    return [Versioned(record, 0) for record in records]


# -- refusals ------------------------------------------------------------------------------------


def _refuse_entry(
    entry: RequestEntryData, entity: QuotaEntity, seen: Container[QuotaEntity]
) -> Refusal | None:
    reason = _reason_of_entity(entity)
    if reason is None and entity in seen:
        reason = "an entity may occur only once in a request"
    if reason is None:
        reason = _reason_of_ops(entity, entry.ops)
    return None if reason is None else Refusal(ErrorCode.INVALID_REQUEST, reason)


def _reason_of_entity(entity: QuotaEntity) -> str | None:
    kinds = [kind for kind, _ in entity]
    if not kinds:
        return "a quota needs an entity"
    if len(set(kinds)) < len(kinds):
        return "an entity has at most one part of each type"
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            return f"unknown entity type {kind[:300]!r}"
        if name == "":
            return f"the name of the {kind} is empty"
    return _reason_of_address(entity) if IP in kinds else None


def _reason_of_address(entity: QuotaEntity) -> str | None:
    if len(entity) > 1:
        return (
            "Invalid quota entity combination: "
            "an IP address cannot be combined with a user or a client id"
        )
    address = entity[0][1]
    if address is not None and not _is_address(address):
        return f"{address[:300]} is not a valid IP address"
    return None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _reason_of_ops(entity: QuotaEntity, ops: Iterable[OpData]) -> str | None:
    keys = IP_KEYS if entity[0][0] == IP else USER_AND_CLIENT_KEYS
    seen = set()
    for op in ops:
        if op.key in seen:
            return f"the key {op.key[:300]!r} occurs twice"
        seen.add(op.key)
        # An unknown key can still be removed: an older version may have set it.
        if not op.remove and (reason := _reason_of_value(keys, op.key, op.value)) is not None:
            return reason
    return None


def _reason_of_value(keys: Mapping[str, int | None], key: str, value: float) -> str | None:
    if key not in keys:
        return f"unknown key {key[:300]!r} for this entity"
    if not value > 0:
        return f"{key} must be greater than 0"
    most = keys[key]
    if most is None:
        return None
    if value > float(most):
        return f"{key} must be at most {most}"
    if value % 1.0 > FRACTION_MAX:
        return f"{key} must be an integer"
    return None


# -- description ---------------------------------------------------------------------------------


def describe_client_quotas(
    image: Image, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Return the quotas of the entities that match all components of the filter.

    A strict filter matches only entities without other parts. Entities are sorted by their parts,
    default entities first.
    """
    refusal = _refuse_filter(request.components)
    if refusal is not None:
        return DescribeClientQuotasResponse(
            error_code=refusal.code, error_message=refusal.message, entries=None
        )
    found = [
        entity
        for entity in image.client_quotas.by_entity
        if _matches(entity, request.components, request.strict)
    ]
    entries = [
        EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[
                ValueData(key=key, value=limit)
                for key, limit in _in_kafka_order(image.client_quotas.of(entity))
            ],
        )
        for entity in sorted(found, key=_in_order)
    ]
    return DescribeClientQuotasResponse(entries=entries)


def _in_kafka_order(limits: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return limits in the order of Kafka's responses, which client tests compare as lists.

    It is the order of a Java hash table of their names, whose size grows with the fourth.
    """
    order = _ORDER_OF_FEW if len(limits) <= _FEW else _ORDER_OF_MANY
    rank = {key: number for number, key in enumerate(order)}
    return sorted(limits.items(), key=lambda item: (rank.get(item[0], len(rank)), item[0]))


def _in_order(entity: QuotaEntity) -> list[tuple[str, bool, str]]:
    return [(kind, name is not None, name or "") for kind, name in entity]


def _matches(entity: QuotaEntity, components: list[ComponentData], strict: bool) -> bool:
    parts = dict(entity)
    if strict and len(parts) != len(components):
        return False
    return all(
        component.entity_type in parts
        and (
            component.match_type == MATCH_SPECIFIED
            or parts[component.entity_type] == component.match
        )
        for component in components
    )


def _refuse_filter(components: list[ComponentData]) -> Refusal | None:
    kinds = [component.entity_type for component in components]
    for component in components:
        kind = component.entity_type
        if kind == "" or kinds.count(kind) > 1:
            message = "A filter must have one component per entity type, each with a type"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
        if kind not in (USER, CLIENT_ID, IP):
            message = f"Unknown entity type {kind[:300]!r}"
            return Refusal(ErrorCode.UNSUPPORTED_VERSION, message)
        if component.match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED):
            message = f"Match type {component.match_type} is unknown"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
        if (component.match_type == MATCH_EXACT) != (component.match is not None):
            message = "An exact match needs a name, and no other may have one"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
    if IP in kinds and len(kinds) > 1:
        message = (
            "Invalid entity filter component combination: "
            "an IP address cannot be combined with a user or a client id"
        )
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    return None
