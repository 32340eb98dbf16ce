"""Metadata records about access: ACLs, SCRAM credentials, delegation tokens (KIP-631)."""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BYTES,
    INT8,
    INT32,
    INT64,
    STRING,
    UUID,
    Field,
    Message,
    Schema,
    array_of,
)
from ottla.protocol.types import ZERO_UUID, Uuid


class AccessControlEntryRecord(Message):
    """An ACL was added, under an id of its own.

    Version 0, flexible from 0.
    """

    id: Uuid = ZERO_UUID
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 0
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=18,
        fields=(
            Field("id", UUID, (0, 0)),
            Field("resource_type", INT8, (0, 0)),
            Field("resource_name", STRING, (0, 0)),
            Field("pattern_type", INT8, (0, 0)),
            Field("principal", STRING, (0, 0)),
            Field("host", STRING, (0, 0)),
            Field("operation", INT8, (0, 0)),
            Field("permission_type", INT8, (0, 0)),
        ),
    )


class RemoveAccessControlEntryRecord(Message):
    """The ACL of this id was removed.

    Version 0, flexible from 0.
    """

    id: Uuid = ZERO_UUID

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=19,
        fields=(Field("id", UUID, (0, 0)),),
    )


class UserScramCredentialRecord(Message):
    """A user has this SCRAM credential; keys are stored, never the password.

    Version 0, flexible from 0.
    """

    name: str = ""
    mechanism: int = 0
    salt: bytes = b""
    stored_key: bytes = b""
    server_key: bytes = b""
    iterations: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=11,
        fields=(
            Field("name", STRING, (0, 0)),
            Field("mechanism", INT8, (0, 0)),
            Field("salt", BYTES, (0, 0)),
            Field("stored_key", BYTES, (0, 0)),
            Field("server_key", BYTES, (0, 0)),
            Field("iterations", INT32, (0, 0)),
        ),
    )


class RemoveUserScramCredentialRecord(Message):
    """A user has no SCRAM credential of this mechanism any more.

    Version 0, flexible from 0.
    """

    name: str = ""
    mechanism: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=22,
        fields=(
            Field("name", STRING, (0, 0)),
            Field("mechanism", INT8, (0, 0)),
        ),
    )


class DelegationTokenRecord(Message):
    """A delegation token exists; its secret is derived, never stored.

    Version 0, flexible from 0.
    """

    owner: str = ""
    requester: str = ""
    renewers: list[str] = field(default_factory=list)
    issue_timestamp: int = 0
    max_timestamp: int = 0
    expiration_timestamp: int = 0
    token_id: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=10,
        fields=(
            Field("owner", STRING, (0, 0)),
            Field("requester", STRING, (0, 0)),
            Field("renewers", array_of(STRING), (0, 0)),
            Field("issue_timestamp", INT64, (0, 0)),
            Field("max_timestamp", INT64, (0, 0)),
            Field("expiration_timestamp", INT64, (0, 0)),
            Field("token_id", STRING, (0, 0)),
        ),
    )


class RemoveDelegationTokenRecord(Message):
    """A delegation token was removed.

    Version 0, flexible from 0.
    """

    token_id: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=26,
        fields=(Field("token_id", STRING, (0, 0)),),
    )
