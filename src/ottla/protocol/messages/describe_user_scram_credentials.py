"""DescribeUserScramCredentials: the messages of api key 50, versions 0-0.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT8, INT16, INT32, STRING, Field, Message, Schema, array_of


class UserName(Message):
    """Part of the message, in versions 0-0."""

    name: str = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(Field("name", STRING, (0, 0)),),
    )


class DescribeUserScramCredentialsRequest(Message):
    """DescribeUserScramCredentials request, versions 0-0, flexible from 0."""

    users: list[UserName] | None = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=50,
        fields=(Field("users", array_of(UserName), (0, 0), nullable=(0, 0)),),
    )


class CredentialInfo(Message):
    """Part of the message, in versions 0-0."""

    mechanism: int = 0
    iterations: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("mechanism", INT8, (0, 0)),
            Field("iterations", INT32, (0, 0)),
        ),
    )


class DescribeUserScramCredentialsResult(Message):
    """Part of the message, in versions 0-0."""

    user: str = ""
    error_code: int = 0
    error_message: str | None = ""
    credential_infos: list[CredentialInfo] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("user", STRING, (0, 0)),
            Field("error_code", INT16, (0, 0)),
            Field("error_message", STRING, (0, 0), nullable=(0, 0)),
            Field("credential_infos", array_of(CredentialInfo), (0, 0)),
        ),
    )


class DescribeUserScramCredentialsResponse(Message):
    """DescribeUserScramCredentials response, versions 0-0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=50,
        fields=(
            Field("throttle_time_ms", INT32, (0, 0)),
            Field("error_code", INT16, (0, 0)),
            Field("error_message", STRING, (0, 0), nullable=(0, 0)),
            Field("results", array_of(DescribeUserScramCredentialsResult), (0, 0)),
        ),
    )
