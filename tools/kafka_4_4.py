"""What Kafka 4.4 adds to the messages of 4.3, declared by hand: kio does not have that release.

`tools.generate_messages` applies it to the models that it makes from kio's entities. A test
compares the result with the definitions inside the 4.4.0 client, where that can be had. Delete an
entry once kio has it.
"""

import dataclasses
from typing import Final

UNSTATED: Final = object()


@dataclasses.dataclass(frozen=True)
class Addition:
    """A field that the newest version adds to a struct, in front of the field ``before``.

    ``kind`` is a primitive or the name of a struct; ``[kind]`` is an array of it.
    """

    name: str
    kind: str
    default: object = UNSTATED
    is_nullable: bool = False
    before: str | None = None


@dataclasses.dataclass(frozen=True)
class Release:
    """The newest version of an API: what it adds to structs, takes from them, and renames."""

    version: int
    added: dict[str, tuple[Addition, ...]] = dataclasses.field(default_factory=dict)
    removed: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    renamed: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)


TOPOLOGY_DESCRIPTION: Final = {
    "TopologyDescriptionNode": (
        Addition("name", "string"),
        Addition("node_type", "int8"),
        Addition("source_topics", "[string]"),
        Addition("sink_topic", "string", None, is_nullable=True),
        Addition("stores", "[string]"),
        Addition("successors", "[string]"),
    ),
    "TopologyDescriptionSubtopology": (
        Addition("subtopology_id", "string"),
        Addition("nodes", "[TopologyDescriptionNode]"),
    ),
    "TopologyDescriptionGlobalStore": (
        Addition("source", "TopologyDescriptionNode"),
        Addition("processor", "TopologyDescriptionNode"),
    ),
    "TopologyDescription": (
        Addition("subtopologies", "[TopologyDescriptionSubtopology]"),
        Addition("global_stores", "[TopologyDescriptionGlobalStore]"),
    ),
}

RELEASES: Final = {
    "api_versions": Release(
        5,
        added={
            "ApiVersionsRequest": (
                Addition("cluster_id", "string", None, is_nullable=True),
                Addition("node_id", "int32", -1),
            )
        },
    ),
    "txn_offset_commit": Release(
        6,
        added={
            "TxnOffsetCommitRequestTopic": (Addition("topic_id", "uuid", before="partitions"),),
            "TxnOffsetCommitResponseTopic": (Addition("topic_id", "uuid", before="partitions"),),
        },
        removed={
            "TxnOffsetCommitRequestTopic": ("name",),
            "TxnOffsetCommitResponseTopic": ("name",),
        },
        renamed={"TxnOffsetCommitRequest": {"generation_id": "generation_id_or_member_epoch"}},
    ),
    "delete_groups": Release(
        3,
        added={
            "DeletableGroupResult": (Addition("error_message", "string", None, is_nullable=True),)
        },
    ),
    "streams_group_heartbeat": Release(
        1,
        added={
            "StreamsGroupHeartbeatResponse": (
                Addition("acceptable_recovery_lag", "int64", -1, before="status"),
                Addition(
                    "topology_description_required",
                    "bool",
                    False,
                    before="endpoint_information_epoch",
                ),
            )
        },
        removed={"StreamsGroupHeartbeatResponse": ("acceptable_recovery_lag_legacy",)},
        renamed={
            "StreamsGroupHeartbeatResponse": {
                "acceptable_recovery_lag": "acceptable_recovery_lag_legacy"
            }
        },
    ),
    "streams_group_describe": Release(
        1,
        added={
            **TOPOLOGY_DESCRIPTION,
            "StreamsGroupDescribeRequest": (
                Addition("include_topology_description", "bool", False),
            ),
            "DescribedGroup": (
                Addition("topology_description", "TopologyDescription", None, is_nullable=True),
                Addition("topology_description_status", "int8", 0),
                Addition("assignor_name", "string", None, is_nullable=True),
            ),
        },
    ),
}

_REPLY: Final = (
    Addition("throttle_time_ms", "int32"),
    Addition("error_code", "int16"),
)

NEW_APIS: Final = {
    93: (
        "streams_group_topology_description_update",
        {
            **TOPOLOGY_DESCRIPTION,
            "StreamsGroupTopologyDescriptionUpdateRequest": (
                Addition("group_id", "string"),
                Addition("member_id", "string"),
                Addition("topology_epoch", "int32"),
                Addition("topology_description", "TopologyDescription"),
            ),
        },
        {
            "StreamsGroupTopologyDescriptionUpdateResponse": (
                *_REPLY,
                Addition("error_message", "string", None, is_nullable=True),
            )
        },
    ),
    94: (
        "unregister_controller",
        {"UnregisterControllerRequest": (Addition("controller_id", "int32"),)},
        {
            "UnregisterControllerResponse": (
                *_REPLY,
                Addition("error_message", "string", "", is_nullable=True),
            )
        },
    ),
}
"""The requests and responses of new APIs, whose only version, 0, is flexible."""
