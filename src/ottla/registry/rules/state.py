"""The state of the registry: the result of replaying ``_schemas``, and plain look-ups in it.

`RegistryState.replay` is the only thing that changes it, and must accept whatever a log can hold.
Ids are counted per context; ``max_id`` never falls, also when the schema of the largest id is
removed or replaced. `has_unkept_ids` says that only the memory of this node still shows such an id.
"""

import base64
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from ottla.registry.rules.entities import Guid, StoredSchema, SubjectConfig, guid_of_md5, md5_of
from ottla.registry.rules.records import (
    ClearSubjectRecord,
    ConfigRecord,
    ContextRecord,
    DeleteSubjectRecord,
    ModeRecord,
    NoopRecord,
    RegistryRecord,
    SchemaRecord,
)
from ottla.registry.rules.subjects import (
    DEFAULT_CONTEXT,
    context_of,
    has_prefix,
    is_match,
    normalise_subject,
    parse_subject,
    qualify,
)

LATEST: Final = -1
Place = tuple[str, int]
"""A subject and a version of it."""


class IdSpace:
    """The ids of one context."""

    def __init__(self) -> None:
        self.max_id = 0
        self.removed_max = 0
        """The largest id that no version shows any more."""
        self.places: dict[int, dict[Place, None]] = {}
        self.ids: dict[Guid, int] = {}

    def add(self, schema: StoredSchema, guid: Guid) -> None:
        """Note that a version has this id."""
        self.max_id = max(self.max_id, schema.id)
        self.places.setdefault(schema.id, {})[schema.subject, schema.version] = None
        self.ids[guid] = schema.id

    def remove(self, schema: StoredSchema, guid: Guid) -> None:
        """Note that a version was removed; its id stays used."""
        places = self.places.get(schema.id, {})
        places.pop((schema.subject, schema.version), None)
        if not places:
            self.places.pop(schema.id, None)
            self.removed_max = max(self.removed_max, schema.id)
            if self.ids.get(guid) == schema.id:
                del self.ids[guid]


class RegistryState:
    """Subjects with their versions, settings, modes and contexts."""

    def __init__(self) -> None:
        self._subjects: dict[str, dict[int, StoredSchema]] = {}
        self._sorted: list[str] | None = None  # the subjects; None: to be sorted again
        self._spaces: dict[str, IdSpace] = {DEFAULT_CONTEXT: IdSpace()}
        self._contexts: dict[str, None] = {}
        self._referrers: dict[Place, dict[Place, None]] = {}
        self._kept_ids: dict[str, int] = {}  # of the newest NOOP: compaction keeps no other
        self._unkept: set[str] = set()
        self.configs: dict[str | None, SubjectConfig] = {}
        self.modes: dict[str | None, str] = {}

    # -- replay ----------------------------------------------------------------------

    def replay(self, record: RegistryRecord) -> None:
        """Apply a record."""
        match record:
            case SchemaRecord():
                self._replay_schema(record)
            case ConfigRecord():
                _put(self.configs, record.subject, record.value)
            case ModeRecord():
                _put(self.modes, record.subject, record.mode)
            case DeleteSubjectRecord():
                self._delete_softly(record)
            case ClearSubjectRecord():
                self._clear(record)
            case ContextRecord():
                _put(self._contexts, record.context, record.is_present or None)
            case NoopRecord():
                self._replay_noop(record)

    def _replay_noop(self, record: NoopRecord) -> None:
        for context, max_id in record.max_ids.items():
            self.note_used(context, max_id)
        self._kept_ids = record.max_ids
        self._unkept = {
            context
            for context, space in self._spaces.items()
            if space.removed_max > self._kept_ids.get(context, 0)
        }

    def note_used(self, context: str, schema_id: int) -> None:
        """Note that an id was given, although no version shows it."""
        space = self._space(context)
        space.max_id = max(space.max_id, schema_id)
        space.removed_max = max(space.removed_max, schema_id)
        self._note_unkept(context)

    def note_used_in(self, other: "RegistryState") -> None:
        """Note all ids that another state of the same topic shows."""
        for context, space in other._spaces.items():
            if space.max_id:
                self.note_used(context, space.max_id)

    def _note_unkept(self, context: str) -> None:
        if self._space(context).removed_max > self._kept_ids.get(context, 0):
            self._unkept.add(context)

    def _replay_schema(self, record: SchemaRecord) -> None:
        versions = self._subjects.get(record.subject, {})
        old = versions.get(record.version)
        if old is not None:
            self._forget(old)
        if record.value is None:
            versions.pop(record.version, None)
            if not versions and self._subjects.pop(record.subject, None) is not None:
                self._sorted = None
            return
        schema = with_guid(record.value)
        if record.subject not in self._subjects:
            self._sorted = None
        self._subjects.setdefault(record.subject, {})[record.version] = schema
        self._space(context_of(schema.subject)).add(schema, schema.guid or "")
        for place in referenced_places(schema):
            self._referrers.setdefault(place, {})[schema.subject, schema.version] = None
        if (context := context_of(schema.subject)) != DEFAULT_CONTEXT:
            self._contexts.setdefault(context)

    def _forget(self, schema: StoredSchema) -> None:
        context = context_of(schema.subject)
        self._space(context).remove(schema, schema.guid or "")
        self._note_unkept(context)
        for place in referenced_places(schema):
            referrers = self._referrers.get(place, {})
            referrers.pop((schema.subject, schema.version), None)
            if not referrers:
                self._referrers.pop(place, None)

    def _delete_softly(self, record: DeleteSubjectRecord) -> None:
        if record.version is None:
            return
        versions = self._subjects.get(record.subject, {})
        for version, schema in versions.items():
            if version <= record.version and not schema.deleted:
                versions[version] = msgspec.structs.replace(schema, deleted=True)

    def _clear(self, record: ClearSubjectRecord) -> None:
        if not record.is_present:
            return
        for subject in [name for name in self._subjects if is_match(record.subject, name)]:
            for version, schema in list(self._subjects[subject].items()):
                if schema.deleted:
                    self._replay_schema(SchemaRecord(subject, version, None))

    def _space(self, context: str) -> IdSpace:
        space = self._spaces.get(context)
        if space is None:
            space = self._spaces[context] = IdSpace()
        return space

    # -- subjects and versions ---------------------------------------------------------

    def versions(self, subject: str, *, deleted: bool = False) -> list[StoredSchema]:
        """Return the versions of a subject, ascending; with ``deleted`` also deleted ones."""
        versions = self._subjects.get(subject, {})
        return [versions[key] for key in sorted(versions) if deleted or not versions[key].deleted]

    def version(self, subject: str, version: int, *, deleted: bool = False) -> StoredSchema | None:
        """Return a version, or the newest one for `LATEST`."""
        if version == LATEST:
            return self.latest(subject, deleted=deleted)
        schema = self._subjects.get(subject, {}).get(version)
        return None if schema is None or (schema.deleted and not deleted) else schema

    def latest(self, subject: str, *, deleted: bool = False) -> StoredSchema | None:
        """Return the newest version; one that is not deleted, if there is any."""
        return next(
            (
                versions[-1]
                for versions in (self.versions(subject), self.versions(subject, deleted=deleted))
                if versions
            ),
            None,
        )

    def next_version(self, subject: str) -> int:
        """Return the number of the next version: deleted ones count, too."""
        return max(self._subjects.get(subject, {}), default=0) + 1

    def has_subject(self, pattern: str | None, *, deleted: bool = False) -> bool:
        """Say whether the subject, or any of the context or of all, has a version."""
        if pattern is not None and parse_subject(pattern).subject:
            versions = self._subjects.get(normalise_subject(pattern), {})
            return any(deleted or not schema.deleted for schema in versions.values())
        return next(self.subjects(pattern, deleted=deleted), None) is not None

    def subjects(self, pattern: str | None, *, deleted: bool = False) -> Iterator[str]:
        """Yield the matching subjects that have a version."""
        for subject, versions in self._subjects.items():
            if is_match(pattern, subject) and (
                deleted or not all(schema.deleted for schema in versions.values())
            ):
                yield subject

    def subjects_with_prefix(self, prefix: str) -> Iterator[tuple[str, bool]]:
        """Yield the subjects with a prefix, sorted, and whether each is deleted."""
        if self._sorted is None:
            self._sorted = sorted(self._subjects)
        for subject in self._sorted:
            if has_prefix(prefix, subject):
                versions = self._subjects[subject].values()
                yield subject, all(schema.deleted for schema in versions)

    @property
    def contexts(self) -> list[str]:
        """All contexts, sorted; the default one always exists."""
        return sorted({DEFAULT_CONTEXT, *self._contexts})

    def has_context_record(self, context: str) -> bool:
        """Say whether a context other than the default one is known."""
        return context in self._contexts

    # -- ids ---------------------------------------------------------------------------

    def max_id(self, context: str) -> int:
        """Return the largest id that was given in a context; 0 before the first."""
        space = self._spaces.get(context)
        return 0 if space is None else space.max_id

    @property
    def has_unkept_ids(self) -> bool:
        """Whether an id was given that neither a version nor the newest NOOP record shows."""
        return bool(self._unkept)

    def used_ids(self, contexts: Iterable[str] = ()) -> dict[str, int]:
        """Return the largest id of these contexts, and of all in which versions were removed."""
        names = {*contexts, *(name for name, space in self._spaces.items() if space.removed_max)}
        return {name: self._spaces[name].max_id for name in sorted(names) if name in self._spaces}

    def id_of(self, context: str, guid: Guid) -> int | None:
        """Return the id of a content in a context."""
        space = self._spaces.get(context)
        return None if space is None else space.ids.get(guid)

    def places(self, context: str, schema_id: int) -> Iterable[Place]:
        """Return the versions that have an id."""
        space = self._spaces.get(context)
        return () if space is None else tuple(space.places.get(schema_id, ()))

    def stored(self, place: Place) -> StoredSchema:
        """Return the version at a place that `places` returned."""
        subject, version = place
        return self._subjects[subject][version]

    def referrers(self, place: Place, *, deleted: bool) -> list[StoredSchema]:
        """Return the versions that refer to one; with ``deleted`` also deleted ones."""
        stored = (self.stored(referrer) for referrer in self._referrers.get(place, ()))
        return [schema for schema in stored if deleted or not schema.deleted]

    def counts(self) -> tuple[int, int]:
        """Return the number of subjects and of versions that are not deleted."""
        subjects = versions = 0
        for stored in self._subjects.values():
            active = sum(not schema.deleted for schema in stored.values())
            subjects += active > 0
            versions += active
        return subjects, versions


def referenced_places(schema: StoredSchema) -> list[Place]:
    """Return the versions that a schema refers to."""
    return [
        (qualify(schema.subject, reference.subject), reference.version)
        for reference in schema.references or ()
        if reference.subject is not None and reference.version is not None
    ]


def with_guid(schema: StoredSchema) -> StoredSchema:
    """Return a schema with its guid, taken from its MD5 or computed from its content."""
    digest = b""
    if schema.md5 is not None:
        try:
            digest = base64.b64decode(schema.md5, validate=True)
        except ValueError:  # no base64, or not even ASCII
            digest = b""
    if len(digest) != 16:
        references = schema.references or ()
        digest = md5_of(schema.schema, references, schema.metadata, schema.rule_set)
    return msgspec.structs.replace(schema, guid=guid_of_md5(digest), md5=_base64(digest))


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def _put(values: dict, key: object, value: object | None) -> None:  # type: ignore[type-arg]
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
