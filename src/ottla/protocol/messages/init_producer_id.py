"""InitProducerId: the messages of api key 22, versions 0-6.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from ottla.protocol.schema import BOOL, INT16, INT32, INT64, STRING, Field, Message, Schema


class InitProducerIdRequest(Message):
    """InitProducerId request, versions 0-6, flexible from 2."""

    transactional_id: str | None = ""
    transaction_timeout_ms: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    enable2_pc: bool = False
    keep_prepared_txn: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 6),
        flexible=2,
        api_key=22,
        fields=(
            Field("transactional_id", STRING, (0, 6), nullable=(0, 6)),
            Field("transaction_timeout_ms", INT32, (0, 6)),
            Field("producer_id", INT64, (3, 6)),
            Field("producer_epoch", INT16, (3, 6)),
            Field("enable2_pc", BOOL, (6, 6)),
            Field("keep_prepared_txn", BOOL, (6, 6)),
        ),
    )


class InitProducerIdResponse(Message):
    """InitProducerId response, versions 0-6, flexible from 2."""

    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = 0
    ongoing_txn_producer_id: int = -1
    ongoing_txn_producer_epoch: int = -1
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 6),
        flexible=2,
        api_key=22,
        fields=(
            Field("throttle_time_ms", INT32, (0, 6)),
            Field("error_code", INT16, (0, 6)),
            Field("producer_id", INT64, (0, 6)),
            Field("producer_epoch", INT16, (0, 6)),
            Field("ongoing_txn_producer_id", INT64, (6, 6)),
            Field("ongoing_txn_producer_epoch", INT16, (6, 6)),
        ),
    )
