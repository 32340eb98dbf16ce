"""Replies made comparable: what must differ between two brokers is replaced by a neutral word.

Ids are numbered in the order in which a case meets them, so that two replies are equal only if the
same id stands in the same places. Times become "a time", paths and ports become names, and lists
whose order is that of a hash table in Kafka are sorted. Everything else stays as it is.
"""

from dataclasses import dataclass, field
from uuid import UUID

from tests.differential import wire
from tests.differential.script import Step

# Fields that hold ids made by the broker, and the kind of id each one holds.
IDS = {
    "topic_id": "topic",
    "member_id": "member",
    "leader": "member",
    "producer_id": "producer",
    "session_id": "session",
    "share_session_id": "session",
    "replica_directory_id": "directory",
    "voter_directory_id": "directory",
    "directory_id": "directory",
    "client_instance_id": "client instance",
    "subscription_id": "subscription",
    "token_id": "token",
    "broker_epoch": "broker epoch",
    "producer_id_start": "producer block",
    "incarnation_id": "incarnation",
}
# Not compared at all: sizes of the disk, positions in the metadata log, times of the quorum.
IGNORED = {
    ("*", "throttle_time"),
    ("describe_log_dirs", "total_bytes"),
    ("describe_log_dirs", "usable_bytes"),
    ("describe_quorum", "leader_epoch"),
    ("describe_quorum", "high_watermark"),
    ("describe_quorum", "log_end_offset"),
    ("describe_quorum", "last_fetch_timestamp"),
    ("describe_quorum", "last_caught_up_timestamp"),
    ("api_versions", "finalized_features_epoch"),
    ("create_delegation_token", "hmac"),
}
# Lists whose order is no promise of Kafka's: that of a hash table. The fields that name an item.
UNORDERED: dict[tuple[str, str], tuple[str, ...]] = {
    ("metadata", "topics"): ("name", "topic_id"),
    ("metadata", "partitions"): ("partition_index",),
    ("api_versions", "api_keys"): ("api_key",),
    ("api_versions", "supported_features"): ("name",),
    ("api_versions", "finalized_features"): ("name",),
    ("describe_configs", "results"): ("resource_type", "resource_name"),
    ("describe_configs", "configs"): ("name",),
    ("create_topics", "topics"): ("name",),
    ("create_topics", "configs"): ("name",),
    ("delete_topics", "responses"): ("name", "topic_id"),
    ("create_partitions", "results"): ("name",),
    ("incremental_alter_configs", "responses"): ("resource_type", "resource_name"),
    ("alter_configs", "responses"): ("resource_type", "resource_name"),
    ("list_groups", "groups"): ("group_id",),
    ("list_transactions", "transaction_states"): ("transactional_id",),
    ("describe_log_dirs", "topics"): ("name",),
    ("describe_log_dirs", "partitions"): ("partition_index",),
    ("describe_client_quotas", "entries"): ("entity",),
    ("describe_user_scram_credentials", "results"): ("user",),
    ("list_config_resources", "config_resources"): ("resource_type", "resource_name"),
    ("produce", "responses"): ("name", "topic_id"),
    ("produce", "partition_responses"): ("index",),
    ("fetch", "responses"): ("topic", "topic_id"),
    ("fetch", "partitions"): ("partition_index",),
    ("delete_records", "topics"): ("name",),
    ("delete_records", "partitions"): ("partition_index",),
    ("offset_fetch", "topics"): ("name", "topic_id"),
    ("offset_fetch", "partitions"): ("partition_index",),
    ("list_offsets", "topics"): ("name",),
    ("list_offsets", "partitions"): ("partition_index",),
    ("offset_for_leader_epoch", "topics"): ("topic",),
    ("write_txn_markers", "topics"): ("name",),
    ("write_txn_markers", "partitions"): ("partition_index",),
    ("add_partitions_to_txn", "results_by_topic"): ("name",),
    ("add_partitions_to_txn", "topic_results"): ("name",),
    ("add_partitions_to_txn", "results_by_partition"): ("partition_index",),
    ("describe_groups", "members"): ("client_id", "member_metadata", "member_assignment"),
    ("consumer_group_describe", "members"): ("instance_id", "subscribed_topic_names"),
    ("share_group_describe", "members"): ("subscribed_topic_names",),
    ("elect_leaders", "replica_election_results"): ("topic",),
    ("alter_partition_reassignments", "responses"): ("name",),
    ("alter_user_scram_credentials", "results"): ("user",),
    ("delete_groups", "results"): ("group_id",),
    ("list_partition_reassignments", "topics"): ("name",),
    ("alter_replica_log_dirs", "results"): ("topic_name",),
    ("join_group", "members"): ("group_instance_id", "metadata"),
    ("describe_share_group_offsets", "topics"): ("topic_name",),
    ("describe_share_group_offsets", "partitions"): ("partition_index",),
    ("describe_producers", "active_producers"): ("producer_epoch", "last_sequence"),
}
# Lists in which the refused items (TOPIC_AUTHORIZATION_FAILED) have the order of a hash table.
REFUSED_UNORDERED = {("describe_topic_partitions", "topics"): "name"}
_REFUSED = 29
# Texts are our own, except where Kafka's tests and tools compare them: of these APIs, and those
# that begin with some words.
TEXT_APIS = frozenset({"update_features"})
TEXT_STARTS = (
    "Cannot update these configs ",
    "These security configs can be dynamically updated only ",
)
_EMPTY = (None, "", -1, 0, wire.ZERO_UUID)


@dataclass(frozen=True, slots=True)
class Keyed:
    """A list without order: its items by name, in the order of the names."""

    items: "tuple[tuple[str, object], ...]"


@dataclass(slots=True)
class Normaliser:
    """Normalises the replies of one peer in one case. ``words``: texts of this peer to replace."""

    words: dict[str, str]
    ports: dict[int, str]
    _seen: dict[tuple[str, object], str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def outcome(self, step: Step) -> object:
        """Return a comparable form of a step's outcome."""
        if isinstance(step.outcome, str):
            return step.outcome
        version = step.outcome.get("_version", step.version)
        shape = wire.response_shape(step.api, version)
        return self._struct(step.api, shape, step.outcome)

    def _struct(self, api: str, shape: wire.Shape, values: dict[str, object]) -> dict[str, object]:
        result: dict[str, object] = {}
        for spec in shape.fields:
            if (api, spec.name) in IGNORED or ("*", spec.name) in IGNORED:
                continue
            result[spec.name] = self._field(api, spec, values.get(spec.name, spec.default))
            if spec.name == "error_message" and result[spec.name] and values["error_code"] == 0:
                result[spec.name] = "a message without error"
        # Tagged fields that kio does not know, and the version that was answered.
        result.update({name: values[name] for name in values if name.startswith("_")})
        return result

    def _field(self, api: str, spec: wire.Field, value: object) -> object:
        if value is None:
            return None
        if spec.is_array:
            keys = UNORDERED.get((api, spec.name))
            if keys is None:
                value = _refused_sorted(value, REFUSED_UNORDERED.get((api, spec.name)))
                return [self._one(api, spec, item) for item in value]
            ordered = sorted(value, key=lambda item: (_name(item, keys), repr(item)))
            return _keyed([(_name(item, keys), self._one(api, spec, item)) for item in ordered])
        return self._one(api, spec, value)

    def _one(self, api: str, spec: wire.Field, value: object) -> object:
        if spec.inner is not None:
            return self._struct(api, spec.inner, value)
        if spec.name.endswith(("error_message", "status_detail")):
            is_text = api in TEXT_APIS or str(value).startswith(TEXT_STARTS)
            return value if value is None or is_text else "a message"
        if spec.name in IDS and not isinstance(value, list):
            return self._id(IDS[spec.name], value)
        if spec.kind == "datetime_i64":
            return value if value < 0 else "a time"
        if isinstance(value, str):
            return self._text(value)
        if spec.name == "port":
            return self.ports.get(value, value)
        return value

    def _id(self, kind: str, value: object) -> object:
        # Subscription ids are checksums and may be negative.
        is_negative = isinstance(value, int) and value < 0 and kind != "subscription"
        if is_negative or value in _EMPTY or (isinstance(value, UUID) and value.int < 1 << 32):
            return value  # not given out by a broker: a word of the protocol
        if (kind, value) not in self._seen:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._seen[kind, value] = f"{kind} {self._counts[kind]}"
        return self._seen[kind, value]

    def _text(self, value: str) -> str:
        for word, name in self.words.items():
            value = value.replace(word, name)
        return value


def _refused_sorted(items: list, key: str | None) -> list:
    """Sort the refused items among themselves; they keep their places in the list."""
    if key is None:
        return items
    refused = iter(sorted((i for i in items if i["error_code"] == _REFUSED), key=lambda i: i[key]))
    return [next(refused) if item["error_code"] == _REFUSED else item for item in items]


def _name(item: dict[str, object], keys: tuple[str, ...]) -> str:
    """Return the name of an item of an unordered list: fields that are the same on both peers."""
    parts = []
    for key in keys:
        value = item.get(key)
        if isinstance(value, UUID):
            continue  # ids differ between peers; the other fields have to do
        parts.append("" if value is None else str(value))
    return " ".join(part for part in parts if part)


def _keyed(items: list[tuple[str, object]]) -> Keyed:
    counts: dict[str, int] = {}
    named = []
    for name, value in items:
        counts[name] = counts.get(name, 0) + 1
        named.append((name if counts[name] == 1 else f"{name} ({counts[name]})", value))
    return Keyed(tuple(named))
