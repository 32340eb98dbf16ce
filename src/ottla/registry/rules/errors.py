"""Rejections of the registry, with the codes and messages of Confluent's, which clients match on.

The first three digits of a code are the HTTP status.
"""

from typing import Final

INCOMPATIBLE: Final = 40901


class Rejection(Exception):
    """A request that is refused. Nothing was written."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.code if self.code < 1000 else self.code // 100

    @property
    def body_code(self) -> int:
        """The code in the body: clients see 409 where a schema is incompatible."""
        return 409 if self.code == INCOMPATIBLE else self.code


def subject_not_found(subject: str) -> Rejection:
    """No version, or only deleted ones."""
    return Rejection(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> Rejection:
    """The subject has no such version."""
    return Rejection(40402, f"Version {version} not found.")


def schema_not_found(name: int | str | None = None) -> Rejection:
    """No schema has this id, guid or content."""
    text = "Schema not found" if name is None else f"Schema {name} not found"
    return Rejection(40403, text)


def subject_soft_deleted(subject: str) -> Rejection:
    """It can only be deleted for good."""
    text = f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently"
    return Rejection(40404, text)


def subject_not_soft_deleted(subject: str) -> Rejection:
    """It has to be deleted softly first."""
    text = f"Subject '{subject}' was not deleted first before being permanently deleted"
    return Rejection(40405, text)


def version_soft_deleted(subject: str, version: int) -> Rejection:
    """It can only be deleted for good."""
    text = f"Subject '{subject}' Version {version} was soft deleted."
    return Rejection(40406, f"{text}Set permanent=true to delete permanently")


def version_not_soft_deleted(subject: str, version: int) -> Rejection:
    """It has to be deleted softly first."""
    text = f"Subject '{subject}' Version {version} was not deleted first before being "
    return Rejection(40407, f"{text}permanently deleted")


def no_subject_config(subject: str) -> Rejection:
    """The subject has no settings of its own."""
    text = f"Subject '{subject}' does not have subject-level compatibility configured"
    return Rejection(40408, text)


def no_subject_mode(subject: str) -> Rejection:
    """The subject has no mode of its own."""
    return Rejection(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, details: list[str]) -> Rejection:
    """An earlier schema and the new one cannot be used together."""
    text = "Schema being registered is incompatible with an earlier schema for subject "
    return Rejection(INCOMPATIBLE, f'{text}"{subject}", details: [{", ".join(details)}]')


def without_details(rejection: Rejection, subject: str) -> Rejection:
    """Return the rejection for a client that may not read: details show an earlier schema."""
    if rejection.code != INCOMPATIBLE:
        return rejection
    return incompatible(subject, ["{the user is denied operation Read on the subject}"])


def invalid_schema(details: str) -> Rejection:
    """The text is no schema."""
    return Rejection(42201, details)


def invalid_version(version: str) -> Rejection:
    """The version in a path is no number."""
    text = (
        f"The specified version '{version}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"'
    )
    return Rejection(42202, text)


def invalid_level() -> Rejection:
    """An unknown compatibility level."""
    text = (
        "Invalid compatibility level. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive"
    )
    return Rejection(42203, text)


def invalid_mode() -> Rejection:
    """An unknown mode."""
    text = "Invalid mode. Valid values are READWRITE, READONLY, IMPORT and FORWARD."
    return Rejection(42204, text)


def not_permitted(text: str) -> Rejection:
    """The mode forbids it."""
    return Rejection(42205, text)


def reference_exists(subject: str, version: int) -> Rejection:
    """Another schema refers to it."""
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return Rejection(42206, f"One or more references exist to the schema {key}.")


def id_mismatch(text: str) -> Rejection:
    """An import whose id belongs to another schema."""
    return Rejection(42207, text)


def invalid_subject(subject: str) -> Rejection:
    """A name that no subject may have."""
    return Rejection(42208, f"The specified subject '{subject}' is not a valid.")


def too_large() -> Rejection:
    """The record does not fit into the topic."""
    return Rejection(42209, "Register operation failed because schema is too large")


def invalid_rule_set(text: str) -> Rejection:
    """A rule that no client could run."""
    return Rejection(42210, text)


def context_not_empty(context: str) -> Rejection:
    """The context has subjects."""
    return Rejection(42211, f"The specified context '{context}' is not empty.")


def store_failed(text: str) -> Rejection:
    """The topic could not be written or read."""
    return Rejection(50001, text)


def timed_out(text: str) -> Rejection:
    """The write was not replicated in time; it may take effect later."""
    return Rejection(50002, text)


def forwarding_failed(text: str) -> Rejection:
    """The leader did not answer."""
    return Rejection(50003, text)


def no_leader(text: str = "Leader not known.") -> Rejection:
    """The topic has no leader, or none that serves the registry."""
    return Rejection(50004, text)
