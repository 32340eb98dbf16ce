"""Records of ``_schemas``, in the format of Confluent's registry.

Keys are JSON objects whose members have a fixed order, so that compaction finds equal keys:

    {"keytype":"SCHEMA","subject":"s","version":1,"magic":1}   a version; without value: deleted
    {"keytype":"CONFIG","subject":"s","magic":0}               settings; without subject: global
    {"keytype":"MODE","subject":"s","magic":0}                 the same for modes
    {"keytype":"DELETE_SUBJECT","subject":"s","magic":0}       versions up to one are deleted softly
    {"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}        forget what was deleted
    {"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}
    {"keytype":"NOOP","magic":0}                               nothing, except for this registry:

The value of a NOOP is ignored by other registries. This one writes ``{"maxIds":{".":7}}`` there
before it removes or replaces versions (`used_ids.py`): an id is never given again, even if nothing
else in the compacted topic shows that it was given.
"""

from typing import Final, TypeAlias

import msgspec

from ottla.protocol.types import Buffer
from ottla.registry.rules.entities import Entity, StoredSchema, SubjectConfig
from ottla.registry.rules.subjects import context_of

TOPIC: Final = "_schemas"
TENANT: Final = "default"
RECORD_BYTES_MAX: Final = 64 << 20


class PoisonRecord(Exception):
    """A record that is none of a registry; the text says why.

    ``used_id`` is the context and id of a version that cannot be read otherwise: it was given.
    """

    def __init__(self, text: str, used_id: tuple[str, int] | None = None) -> None:
        super().__init__(text)
        self.used_id = used_id


class SchemaRecord(msgspec.Struct, frozen=True):
    """A version of a subject; without value it was removed."""

    subject: str
    version: int
    value: StoredSchema | None


class ConfigRecord(msgspec.Struct, frozen=True):
    """Settings; of the registry where ``subject`` is None."""

    subject: str | None
    value: SubjectConfig | None


class ModeRecord(msgspec.Struct, frozen=True):
    """A mode; of the registry where ``subject`` is None."""

    subject: str | None
    mode: str | None


class DeleteSubjectRecord(msgspec.Struct, frozen=True):
    """All versions up to ``version`` are deleted softly; None: the record itself was removed."""

    subject: str
    version: int | None


class ClearSubjectRecord(msgspec.Struct, frozen=True):
    """What was deleted of a subject is forgotten."""

    subject: str | None
    is_present: bool = True


class ContextRecord(msgspec.Struct, frozen=True):
    """A context exists, or not any more."""

    context: str
    is_present: bool


class NoopRecord(msgspec.Struct, frozen=True):
    """The largest ids that were given, by context. Written with some only: see above."""

    max_ids: dict[str, int] = msgspec.field(default_factory=dict)


RegistryRecord: TypeAlias = (
    SchemaRecord
    | ConfigRecord
    | ModeRecord
    | DeleteSubjectRecord
    | ClearSubjectRecord
    | ContextRecord
    | NoopRecord
)


class _Key(msgspec.Struct, frozen=True):
    keytype: str
    subject: str | None = None
    version: int | None = None
    tenant: str | None = None
    context: str | None = None
    magic: int = 0


class _Mode(Entity, frozen=True):
    mode: str
    subject: str | None = None


class _DeleteSubject(Entity, frozen=True):
    version: int
    subject: str | None = None


class _MaxIds(Entity, frozen=True):
    max_ids: dict[str, int] = msgspec.field(default_factory=dict)


class _Id(msgspec.Struct, frozen=True):
    id: int


_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_keys: Final = msgspec.json.Decoder(_Key, strict=False)
_schemas: Final = msgspec.json.Decoder(StoredSchema, strict=False)
_ids: Final = msgspec.json.Decoder(_Id, strict=False)
_configs: Final = msgspec.json.Decoder(SubjectConfig, strict=False)
_modes: Final = msgspec.json.Decoder(_Mode, strict=False)
_deletions: Final = msgspec.json.Decoder(_DeleteSubject, strict=False)
_max_ids: Final = msgspec.json.Decoder(_MaxIds, strict=False)
NUMBER_MAX: Final = 2**31 - 1
"""The largest id or version: both are 32-bit integers for clients."""
_IGNORED: Final = frozenset({"ASSOC", "SCHEMA_TAGS"})


def encode_record(record: RegistryRecord) -> tuple[bytes, bytes | None]:  # noqa: PLR0911 - one per kind
    """Return the key and the value of a record."""
    match record:
        case SchemaRecord():
            return schema_key(record.subject, record.version), _json(record.value)
        case ConfigRecord():
            return _key("CONFIG", record.subject), _json(record.value)
        case ModeRecord():
            value = None if record.mode is None else _Mode(record.mode, record.subject)
            return _key("MODE", record.subject), _json(value)
        case DeleteSubjectRecord():
            deleted = None
            if record.version is not None:
                deleted = _DeleteSubject(record.version, record.subject)
            return _key("DELETE_SUBJECT", record.subject), _json(deleted)
        case ClearSubjectRecord():
            subject = {} if record.subject is None else {"subject": record.subject}
            return _key("CLEAR_SUBJECT", record.subject), msgspec.json.encode(subject)
        case ContextRecord():
            names = {"tenant": TENANT, "context": record.context}
            key = msgspec.json.encode({"keytype": "CONTEXT", **names, "magic": 0})
            return key, msgspec.json.encode(names) if record.is_present else None
        case NoopRecord():
            key = msgspec.json.encode({"keytype": "NOOP", "magic": 0})
            return key, _json(_MaxIds(record.max_ids)) if record.max_ids else None


def schema_key(subject: str, version: int) -> bytes:
    """Return the key of a version."""
    members = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    return msgspec.json.encode(members)


def _key(keytype: str, subject: str | None) -> bytes:
    members: dict[str, object] = {"keytype": keytype}
    if subject:
        members["subject"] = subject
    return msgspec.json.encode({**members, "magic": 0})


def _json(value: Entity | None) -> bytes | None:
    return None if value is None else msgspec.json.encode(value)


def decode_record(key: Buffer | None, value: Buffer | None) -> RegistryRecord | None:
    """Read a record; None for one that has no meaning here.

    Raises:
        PoisonRecord
    """
    if key is None:
        raise PoisonRecord("it has no key")
    try:
        decoded = _keys.decode(key)
    except _UNREADABLE as error:
        raise PoisonRecord(str(error)) from error
    try:
        return _decode(decoded, value)
    except (PoisonRecord, *_UNREADABLE) as error:
        raise PoisonRecord(str(error), _used_id(decoded, value)) from error


def _used_id(key: _Key, value: Buffer | None) -> tuple[str, int] | None:
    """Return the context and id of a version of which nothing else may be readable."""
    if key.keytype != "SCHEMA" or key.subject is None or value is None:
        return None
    try:
        schema_id = _ids.decode(value).id
    except _UNREADABLE:
        return None
    is_id = 0 < schema_id <= NUMBER_MAX
    return (context_of(key.subject), schema_id) if is_id else None


def _decode(key: _Key, value: Buffer | None) -> RegistryRecord | None:  # noqa: PLR0911 - one per kind
    match key.keytype:
        case "SCHEMA":
            return _schema_record(key, value)
        case "CONFIG":
            config = None if value is None else _configs.decode(value)
            return ConfigRecord(key.subject or None, config)
        case "MODE":
            return ModeRecord(key.subject or None, None if value is None else _mode(value))
        case "DELETE_SUBJECT" if key.subject is not None:
            version = None if value is None else _deletions.decode(value).version
            return DeleteSubjectRecord(key.subject, version)
        case "CLEAR_SUBJECT":
            return ClearSubjectRecord(key.subject or None, value is not None)
        case "CONTEXT" if key.context is not None:
            return ContextRecord(key.context, value is not None)
        case "NOOP":
            return NoopRecord({} if value is None else _noop_ids(value))
        case _ if key.keytype in _IGNORED:
            return None
    raise PoisonRecord(f"its key type {key.keytype[:100]!r} is unknown or incomplete")


def _schema_record(key: _Key, value: Buffer | None) -> SchemaRecord:
    if key.subject is None or key.version is None or not 1 <= key.version <= NUMBER_MAX:
        raise PoisonRecord("its key has no subject or version")
    schema = None if value is None else _schemas.decode(value)
    if schema is not None and (schema.subject, schema.version) != (key.subject, key.version):
        raise PoisonRecord("its value is of another subject or version than its key")
    if schema is not None and not 0 <= schema.id <= NUMBER_MAX:
        raise PoisonRecord("its id is out of range")
    for reference in () if schema is None else schema.references or ():
        if not -1 <= (reference.version or 0) <= NUMBER_MAX:
            raise PoisonRecord("it refers to a version that is out of range")
    return SchemaRecord(key.subject, key.version, schema)


def _mode(value: Buffer) -> str:
    return _modes.decode(value).mode.upper()


def _noop_ids(value: Buffer) -> dict[str, int]:
    """Return the ids in a NOOP; what another registry has written there is ignored."""
    try:
        max_ids = _max_ids.decode(value).max_ids
    except _UNREADABLE:
        return {}
    return {context: number for context, number in max_ids.items() if 0 < number <= NUMBER_MAX}
