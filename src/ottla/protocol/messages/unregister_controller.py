"""UnregisterController: the messages of api key 94, versions 0-0.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from ottla.protocol.schema import INT16, INT32, STRING, Field, Message, Schema


class UnregisterControllerRequest(Message):
    """UnregisterController request, versions 0-0, flexible from 0."""

    controller_id: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=94,
        fields=(Field("controller_id", INT32, (0, 0)),),
    )


class UnregisterControllerResponse(Message):
    """UnregisterController response, versions 0-0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=94,
        fields=(
            Field("throttle_time_ms", INT32, (0, 0)),
            Field("error_code", INT16, (0, 0)),
            Field("error_message", STRING, (0, 0), nullable=(0, 0)),
        ),
    )
