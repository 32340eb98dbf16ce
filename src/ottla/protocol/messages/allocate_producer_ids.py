"""AllocateProducerIds: the messages of api key 67, versions 0-0.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from ottla.protocol.schema import INT16, INT32, INT64, Field, Message, Schema


class AllocateProducerIdsRequest(Message):
    """AllocateProducerIds request, versions 0-0, flexible from 0."""

    broker_id: int = 0
    broker_epoch: int = -1
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=67,
        fields=(
            Field("broker_id", INT32, (0, 0)),
            Field("broker_epoch", INT64, (0, 0)),
        ),
    )


class AllocateProducerIdsResponse(Message):
    """AllocateProducerIds response, versions 0-0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id_start: int = 0
    producer_id_len: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=67,
        fields=(
            Field("throttle_time_ms", INT32, (0, 0)),
            Field("error_code", INT16, (0, 0)),
            Field("producer_id_start", INT64, (0, 0)),
            Field("producer_id_len", INT32, (0, 0)),
        ),
    )
