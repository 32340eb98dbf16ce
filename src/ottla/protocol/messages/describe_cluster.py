"""DescribeCluster: the messages of api key 60, versions 0-2.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Field, Message, Schema, array_of


class DescribeClusterRequest(Message):
    """DescribeCluster request, versions 0-2, flexible from 0."""

    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1
    include_fenced_brokers: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=0,
        api_key=60,
        fields=(
            Field("include_cluster_authorized_operations", BOOL, (0, 2)),
            Field("endpoint_type", INT8, (1, 2)),
            Field("include_fenced_brokers", BOOL, (2, 2)),
        ),
    )


class DescribeClusterBroker(Message):
    """Part of the message, in versions 0-2."""

    broker_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None
    is_fenced: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("broker_id", INT32, (0, 2)),
            Field("host", STRING, (0, 2)),
            Field("port", INT32, (0, 2)),
            Field("rack", STRING, (0, 2), nullable=(0, 2)),
            Field("is_fenced", BOOL, (2, 2)),
        ),
    )


class DescribeClusterResponse(Message):
    """DescribeCluster response, versions 0-2, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1
    cluster_id: str = ""
    controller_id: int = -1
    brokers: list[DescribeClusterBroker] = field(default_factory=list)
    cluster_authorized_operations: int = -2147483648
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=0,
        api_key=60,
        fields=(
            Field("throttle_time_ms", INT32, (0, 2)),
            Field("error_code", INT16, (0, 2)),
            Field("error_message", STRING, (0, 2), nullable=(0, 2)),
            Field("endpoint_type", INT8, (1, 2)),
            Field("cluster_id", STRING, (0, 2)),
            Field("controller_id", INT32, (0, 2)),
            Field("brokers", array_of(DescribeClusterBroker), (0, 2)),
            Field("cluster_authorized_operations", INT32, (0, 2)),
        ),
    )
