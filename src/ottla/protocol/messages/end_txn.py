"""EndTxn: the messages of api key 26, versions 0-5.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from ottla.protocol.schema import BOOL, INT16, INT32, INT64, STRING, Field, Message, Schema


class EndTxnRequest(Message):
    """EndTxn request, versions 0-5, flexible from 3."""

    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    committed: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 5),
        flexible=3,
        api_key=26,
        fields=(
            Field("transactional_id", STRING, (0, 5)),
            Field("producer_id", INT64, (0, 5)),
            Field("producer_epoch", INT16, (0, 5)),
            Field("committed", BOOL, (0, 5)),
        ),
    )


class EndTxnResponse(Message):
    """EndTxn response, versions 0-5, flexible from 3."""

    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 5),
        flexible=3,
        api_key=26,
        fields=(
            Field("throttle_time_ms", INT32, (0, 5)),
            Field("error_code", INT16, (0, 5)),
            Field("producer_id", INT64, (5, 5)),
            Field("producer_epoch", INT16, (5, 5)),
        ),
    )
