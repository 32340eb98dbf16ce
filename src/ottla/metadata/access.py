"""The security state of the image: ACLs, SCRAM credentials, delegation tokens.

The numbers in these values are Kafka's; `security` defines their meaning.
"""

from typing import NamedTuple

import msgspec


class ScramUser(NamedTuple):
    """A user under one SCRAM mechanism, by Kafka's number of it."""

    mechanism: int
    name: str


class ScramCredential(msgspec.Struct, frozen=True, gc=False):
    """What a server needs to verify a password (RFC 5802). Never the password.

    The keys are as good as the password to an attacker who can pose as the server: the
    representation leaves them out, so that they never reach a log.
    """

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations}, hidden)"


class DelegationToken(msgspec.Struct, frozen=True, gc=False):
    """A delegation token (KIP-48), by its id. Times in ms since 1970."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int
