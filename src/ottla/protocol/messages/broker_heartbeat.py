"""BrokerHeartbeat: the messages of api key 63, versions 0-2.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import BOOL, INT16, INT32, INT64, UUID, Field, Message, Schema, array_of
from ottla.protocol.types import Uuid


class BrokerHeartbeatRequest(Message):
    """BrokerHeartbeat request, versions 0-2, flexible from 0."""

    broker_id: int = 0
    broker_epoch: int = -1
    current_metadata_offset: int = 0
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: list[Uuid] = field(default_factory=list)
    cordoned_log_dirs: list[Uuid] | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=0,
        api_key=63,
        fields=(
            Field("broker_id", INT32, (0, 2)),
            Field("broker_epoch", INT64, (0, 2)),
            Field("current_metadata_offset", INT64, (0, 2)),
            Field("want_fence", BOOL, (0, 2)),
            Field("want_shut_down", BOOL, (0, 2)),
            Field("offline_log_dirs", array_of(UUID), (1, 2), tag=0, tagged=(1, 2)),
            Field(
                "cordoned_log_dirs", array_of(UUID), (2, 2), nullable=(2, 2), tag=1, tagged=(2, 2)
            ),
        ),
    )


class BrokerHeartbeatResponse(Message):
    """BrokerHeartbeat response, versions 0-2, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=0,
        api_key=63,
        fields=(
            Field("throttle_time_ms", INT32, (0, 2)),
            Field("error_code", INT16, (0, 2)),
            Field("is_caught_up", BOOL, (0, 2)),
            Field("is_fenced", BOOL, (0, 2)),
            Field("should_shut_down", BOOL, (0, 2)),
        ),
    )
