"""The identity of a forwarded request: tagged fields of ours in the Envelope.

Kafka's schema of the Envelope is fixed, and its nodes skip tagged fields that they do not know.
So an Ottla broker can tell an Ottla controller which request a second attempt belongs to, and
both still work with nodes of Apache Kafka.

    request_id  tag 10000, UUID   the same in every attempt of one request
    is_resent   tag 10001, bool   an earlier attempt may have reached a controller
"""

from typing import ClassVar

from ottla.protocol.messages.envelope import EnvelopeRequest
from ottla.protocol.schema import BOOL, BYTES, OWN_TAG_FIRST, UUID, Field, Schema
from ottla.protocol.types import ZERO_UUID, Uuid


class IdentifiedEnvelope(EnvelopeRequest):
    """An Envelope that names its request; ``ZERO_UUID`` where the sender does not.

    Version 0, flexible from 0.
    """

    request_id: Uuid = ZERO_UUID
    is_resent: bool = False

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=58,
        fields=(
            Field("request_data", BYTES, (0, 0)),
            Field("request_principal", BYTES, (0, 0), nullable=(0, 0)),
            Field("client_host_address", BYTES, (0, 0)),
            Field("request_id", UUID, (0, 0), tag=OWN_TAG_FIRST, tagged=(0, 0)),
            Field("is_resent", BOOL, (0, 0), tag=OWN_TAG_FIRST + 1, tagged=(0, 0)),
        ),
    )
