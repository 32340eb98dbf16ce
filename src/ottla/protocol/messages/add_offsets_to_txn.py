"""AddOffsetsToTxn: the messages of api key 25, versions 0-4.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from ottla.protocol.schema import INT16, INT32, INT64, STRING, Field, Message, Schema


class AddOffsetsToTxnRequest(Message):
    """AddOffsetsToTxn request, versions 0-4, flexible from 3."""

    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    group_id: str = ""
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 4),
        flexible=3,
        api_key=25,
        fields=(
            Field("transactional_id", STRING, (0, 4)),
            Field("producer_id", INT64, (0, 4)),
            Field("producer_epoch", INT16, (0, 4)),
            Field("group_id", STRING, (0, 4)),
        ),
    )


class AddOffsetsToTxnResponse(Message):
    """AddOffsetsToTxn response, versions 0-4, flexible from 3."""

    throttle_time_ms: int = 0
    error_code: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 4),
        flexible=3,
        api_key=25,
        fields=(
            Field("throttle_time_ms", INT32, (0, 4)),
            Field("error_code", INT16, (0, 4)),
        ),
    )
