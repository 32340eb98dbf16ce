"""AlterUserScramCredentials: the messages of api key 51, versions 0-0.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BYTES,
    INT8,
    INT16,
    INT32,
    STRING,
    Field,
    Message,
    Schema,
    array_of,
)


class ScramCredentialDeletion(Message):
    """Part of the message, in versions 0-0."""

    name: str = ""
    mechanism: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 0)),
            Field("mechanism", INT8, (0, 0)),
        ),
    )


class ScramCredentialUpsertion(Message):
    """Part of the message, in versions 0-0."""

    name: str = ""
    mechanism: int = 0
    iterations: int = 0
    salt: bytes = b""
    salted_password: bytes = b""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 0)),
            Field("mechanism", INT8, (0, 0)),
            Field("iterations", INT32, (0, 0)),
            Field("salt", BYTES, (0, 0)),
            Field("salted_password", BYTES, (0, 0)),
        ),
    )


class AlterUserScramCredentialsRequest(Message):
    """AlterUserScramCredentials request, versions 0-0, flexible from 0."""

    deletions: list[ScramCredentialDeletion] = field(default_factory=list)
    upsertions: list[ScramCredentialUpsertion] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=51,
        fields=(
            Field("deletions", array_of(ScramCredentialDeletion), (0, 0)),
            Field("upsertions", array_of(ScramCredentialUpsertion), (0, 0)),
        ),
    )


class AlterUserScramCredentialsResult(Message):
    """Part of the message, in versions 0-0."""

    user: str = ""
    error_code: int = 0
    error_message: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("user", STRING, (0, 0)),
            Field("error_code", INT16, (0, 0)),
            Field("error_message", STRING, (0, 0), nullable=(0, 0)),
        ),
    )


class AlterUserScramCredentialsResponse(Message):
    """AlterUserScramCredentials response, versions 0-0, flexible from 0."""

    throttle_time_ms: int = 0
    results: list[AlterUserScramCredentialsResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=51,
        fields=(
            Field("throttle_time_ms", INT32, (0, 0)),
            Field("results", array_of(AlterUserScramCredentialsResult), (0, 0)),
        ),
    )
