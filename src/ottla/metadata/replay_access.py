"""Replays records about ACLs, SCRAM credentials and delegation tokens."""

from msgspec.structs import replace

from ottla.metadata.access import DelegationToken, ScramCredential, ScramUser
from ottla.metadata.image import Image
from ottla.metadata.replay_fault import ReplayFault
from ottla.metadata.touched import Touched
from ottla.protocol.internal.metadata_security import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.security.acl import Acl


def add_acl(image: Image, record: AccessControlEntryRecord, touched: Touched) -> Image:
    """Add an ACL under a new id."""
    if record.id in image.acls:
        raise ReplayFault(f"ACL {record.id.hex()} already exists")
    acl = Acl(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )
    touched.acls[record.id] = None
    return replace(image, acls=image.acls.set(record.id, acl))


def remove_acl(image: Image, record: RemoveAccessControlEntryRecord, touched: Touched) -> Image:
    """Remove an ACL."""
    if record.id not in image.acls:
        raise ReplayFault(f"ACL {record.id.hex()} does not exist")
    touched.acls[record.id] = None
    return replace(image, acls=image.acls.delete(record.id))


def set_scram(image: Image, record: UserScramCredentialRecord, touched: Touched) -> Image:
    """Set a user's credential, replacing an older one."""
    user = ScramUser(record.mechanism, record.name)
    credential = ScramCredential(
        bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
    )
    touched.scram[user] = None
    return replace(image, scram=image.scram.set(user, credential))


def remove_scram(image: Image, record: RemoveUserScramCredentialRecord, touched: Touched) -> Image:
    """Remove a user's credential."""
    user = ScramUser(record.mechanism, record.name)
    if user not in image.scram:
        raise ReplayFault(f"user {record.name} has no credential of mechanism {record.mechanism}")
    touched.scram[user] = None
    return replace(image, scram=image.scram.delete(user))


def set_token(image: Image, record: DelegationTokenRecord, touched: Touched) -> Image:
    """Add or renew a token."""
    token = DelegationToken(
        record.token_id,
        record.owner,
        record.requester,
        tuple(record.renewers),
        record.issue_timestamp,
        record.max_timestamp,
        record.expiration_timestamp,
    )
    touched.delegation_tokens[token.token_id] = None
    return replace(image, delegation_tokens=image.delegation_tokens.set(token.token_id, token))


def remove_token(image: Image, record: RemoveDelegationTokenRecord, touched: Touched) -> Image:
    """Remove a token. Expiry and removal may both do so: the second changes nothing."""
    if record.token_id not in image.delegation_tokens:
        return image
    touched.delegation_tokens[record.token_id] = None
    return replace(image, delegation_tokens=image.delegation_tokens.delete(record.token_id))
