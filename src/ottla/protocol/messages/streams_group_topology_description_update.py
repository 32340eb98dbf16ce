"""StreamsGroupTopologyDescriptionUpdate: the messages of api key 93, versions 0-0.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    INT8,
    INT16,
    INT32,
    STRING,
    Field,
    Message,
    Schema,
    array_of,
    struct_of,
)


class TopologyDescriptionNode(Message):
    """Part of the message, in versions 0-0."""

    name: str = ""
    node_type: int = 0
    source_topics: list[str] = field(default_factory=list)
    sink_topic: str | None = None
    stores: list[str] = field(default_factory=list)
    successors: list[str] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 0)),
            Field("node_type", INT8, (0, 0)),
            Field("source_topics", array_of(STRING), (0, 0)),
            Field("sink_topic", STRING, (0, 0), nullable=(0, 0)),
            Field("stores", array_of(STRING), (0, 0)),
            Field("successors", array_of(STRING), (0, 0)),
        ),
    )


class TopologyDescriptionSubtopology(Message):
    """Part of the message, in versions 0-0."""

    subtopology_id: str = ""
    nodes: list[TopologyDescriptionNode] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("subtopology_id", STRING, (0, 0)),
            Field("nodes", array_of(TopologyDescriptionNode), (0, 0)),
        ),
    )


class TopologyDescriptionGlobalStore(Message):
    """Part of the message, in versions 0-0."""

    source: TopologyDescriptionNode = field(default_factory=TopologyDescriptionNode)
    processor: TopologyDescriptionNode = field(default_factory=TopologyDescriptionNode)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("source", struct_of(TopologyDescriptionNode), (0, 0)),
            Field("processor", struct_of(TopologyDescriptionNode), (0, 0)),
        ),
    )


class TopologyDescription(Message):
    """Part of the message, in versions 0-0."""

    subtopologies: list[TopologyDescriptionSubtopology] = field(default_factory=list)
    global_stores: list[TopologyDescriptionGlobalStore] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("subtopologies", array_of(TopologyDescriptionSubtopology), (0, 0)),
            Field("global_stores", array_of(TopologyDescriptionGlobalStore), (0, 0)),
        ),
    )


class StreamsGroupTopologyDescriptionUpdateRequest(Message):
    """StreamsGroupTopologyDescriptionUpdate request, versions 0-0, flexible from 0."""

    group_id: str = ""
    member_id: str = ""
    topology_epoch: int = 0
    topology_description: TopologyDescription = field(default_factory=TopologyDescription)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=93,
        fields=(
            Field("group_id", STRING, (0, 0)),
            Field("member_id", STRING, (0, 0)),
            Field("topology_epoch", INT32, (0, 0)),
            Field("topology_description", struct_of(TopologyDescription), (0, 0)),
        ),
    )


class StreamsGroupTopologyDescriptionUpdateResponse(Message):
    """StreamsGroupTopologyDescriptionUpdate response, versions 0-0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=93,
        fields=(
            Field("throttle_time_ms", INT32, (0, 0)),
            Field("error_code", INT16, (0, 0)),
            Field("error_message", STRING, (0, 0), nullable=(0, 0)),
        ),
    )
