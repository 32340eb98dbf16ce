"""The handlers of the REST API, and the table of its paths.

``*`` stands for one variable segment. Handlers check access, answer from the state or have a change
decided, and raise Rejections.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from ottla.registry.http_call import Call, Reply, json_reply, text_reply
from ottla.registry.http_setting_handlers import (
    delete_config,
    delete_mode,
    get_config,
    get_mode,
    put_config,
    put_mode,
)
from ottla.registry.rules import errors, lookups
from ottla.registry.rules.decision import Decision
from ottla.registry.rules.deletion import (
    decide_context_deletion,
    decide_subject_deletion,
    decide_version_deletion,
)
from ottla.registry.rules.entities import RegisterRequest, StoredSchema, TagsRequest
from ottla.registry.rules.lookups import Filter, Page, SchemaFilter, parse_version
from ottla.registry.rules.references import REFERENCES_MAX, stored_text
from ottla.registry.rules.registration import (
    Registration,
    decide_registration,
    echoed_text,
    without_content,
)
from ottla.registry.rules.replies import (
    Json,
    own_members,
    registered_reply,
    schema_reply,
)
from ottla.registry.rules.schema_work import Results
from ottla.registry.rules.settings import replace_alias
from ottla.registry.rules.state import RegistryState
from ottla.registry.rules.subjects import (
    ALL_CONTEXTS,
    DEFAULT_CONTEXT,
    GLOBAL_CONTEXT,
    context_of,
    context_prefix,
    normalise_subject,
    qualify,
)
from ottla.registry.rules.tagging import decide_tags
from ottla.registry.service import SchemaRegistry
from ottla.security.acl import AclOperation

READ: Final = AclOperation.READ
WRITE: Final = AclOperation.WRITE
DELETE: Final = AclOperation.DELETE
DESCRIBE: Final = AclOperation.DESCRIBE
EVERYWHERE: Final = context_prefix(GLOBAL_CONTEXT)
LIMIT_MAX: Final = 20_000
SCHEMAS_LIMIT_MAX: Final = 1_000

Handler = Callable[[SchemaRegistry, Call], Awaitable[Reply]]


def _page(call: Call) -> Page:
    return Page(call.target.number("offset", 0), call.target.number("limit", -1))


def _filter(call: Call) -> Filter:
    target = call.target
    return Filter(target.flag("deleted"), target.flag("deletedOnly"))


def _readable(registry: SchemaRegistry, call: Call, schema: StoredSchema) -> StoredSchema:
    """Return a schema that may be of another subject than the path names: by alias or context."""
    if schema.subject != call.subject:
        registry.access.check(call.identity, READ, schema.subject)
    return schema


def _check_references(registry: SchemaRegistry, call: Call, body: RegisterRequest) -> None:
    """Raise a Rejection unless the client may read what its schema refers to.

    Otherwise the text of a schema could be read through one that refers to it.
    """
    for reference in (body.references or ())[:REFERENCES_MAX]:
        name = qualify(call.subject, reference.subject or "")
        registry.access.check(call.identity, READ, name)


def _sees(registry: SchemaRegistry, call: Call) -> Callable[[str], bool]:
    return lambda subject: registry.access.may(call.identity, DESCRIBE, subject, is_audited=False)


# -- the registry itself ------------------------------------------------------------------


async def root(registry: SchemaRegistry, call: Call) -> Reply:
    """``/``: an empty object, by which clients see that the registry answers."""
    return json_reply({})


async def schema_types(registry: SchemaRegistry, call: Call) -> Reply:
    """Return the languages."""
    return json_reply(["JSON", "PROTOBUF", "AVRO"])


async def server_id(registry: SchemaRegistry, call: Call) -> Reply:
    """Return the ids of the cluster."""
    names = {"kafka-cluster": registry.settings.cluster_id, "schema-registry-cluster": "ottla"}
    return json_reply({"scope": {"path": [], "clusters": names}, "id": ""})


async def server_version(registry: SchemaRegistry, call: Call) -> Reply:
    """Return the version of the API that this registry answers like."""
    return json_reply({"version": "8.0.0", "commitId": ""})


async def server_deployment(registry: SchemaRegistry, call: Call) -> Reply:
    """Return what kind of deployment this is."""
    return json_reply({"attributes": {}})


async def contexts(registry: SchemaRegistry, call: Call) -> Reply:
    """List the contexts."""
    prefix = call.target.text("contextPrefix")
    sees, state = _sees(registry, call), registry.state
    visible = {context_of(name) for name in state.subjects(EVERYWHERE, deleted=True) if sees(name)}
    names = [
        name
        for name in state.contexts
        if name.startswith(prefix) and (name == DEFAULT_CONTEXT or name in visible)
    ]
    return json_reply(_page(call).of(names, LIMIT_MAX))


async def delete_context(registry: SchemaRegistry, call: Call) -> Reply:
    """Delete an empty context."""
    registry.access.check_settings(call.identity, AclOperation.ALTER, None)
    return await registry.change(
        call, lambda state, results: decide_context_deletion(state, call.names[0])
    )


# -- subjects and versions ----------------------------------------------------------------


async def list_subjects(registry: SchemaRegistry, call: Call) -> Reply:
    """List subjects."""
    prefix = call.target.text("subjectPrefix", ALL_CONTEXTS)
    sees = _sees(registry, call)
    names = lookups.list_subjects(registry.state, prefix, _filter(call), sees)
    return json_reply(_page(call).of(names, LIMIT_MAX))


async def list_versions(registry: SchemaRegistry, call: Call) -> Reply:
    """List the versions of a subject."""
    registry.access.check(call.identity, READ, call.subject)
    registry.access.check(call.identity, READ, replace_alias(registry.state, call.subject))
    has_signs = call.target.flag("deletedAsNegative")
    wanted = msgspec.structs.replace(_filter(call), deleted_as_negative=has_signs)
    numbers = lookups.list_versions(registry.state, call.subject, wanted)
    return json_reply(_page(call).of(numbers, LIMIT_MAX))


async def get_version(registry: SchemaRegistry, call: Call) -> Reply:
    """Return a version."""
    registry.access.check(call.identity, READ, call.subject)
    version = parse_version(call.names[1])

    def answer(state: RegistryState, results: Results) -> Json:
        schema = lookups.find_version(
            state, call.subject, version, deleted=call.target.flag("deleted")
        )
        return _version_reply(state, call, _readable(registry, call, schema), results)

    return json_reply(await registry.read(answer))


def _version_reply(
    state: RegistryState, call: Call, schema: StoredSchema, results: Results
) -> Json:
    """Return a version in the format and with the tags that a request asks for."""
    text = lookups.formatted(state, schema, call.target.text("format"), results)
    tags = _tags(state, call, schema, results)
    if call.target.text("referenceFormat") == "qualified":
        schema = lookups.with_qualified_references(schema)
    return {**schema_reply(schema, text=text), **tags}


def _tags(state: RegistryState, call: Call, schema: StoredSchema, results: Results) -> Json:
    names = call.target.query.get("findTags")
    if not names:
        return {}
    found = lookups.tags_reply(results.parsed(stored_text(state, schema)).tags, names)
    return {"schemaTags": found} if found else {}


async def get_version_text(registry: SchemaRegistry, call: Call) -> Reply:
    """Return the schema of a version itself."""
    registry.access.check(call.identity, READ, call.subject)
    version = parse_version(call.names[1])

    def answer(state: RegistryState, results: Results) -> str:
        schema = lookups.find_version(
            state, call.subject, version, deleted=call.target.flag("deleted")
        )
        _readable(registry, call, schema)
        text = lookups.formatted(state, schema, call.target.text("format"), results)
        return schema.schema if text is None else text

    return text_reply(await registry.read(answer))


async def referenced_by(registry: SchemaRegistry, call: Call) -> Reply:
    """List the ids of the schemas that refer to a version."""
    registry.access.check(call.identity, READ, call.subject)
    version, deleted = parse_version(call.names[1]), call.target.flag("deleted")
    schema = lookups.find_version(registry.state, call.subject, version, deleted=True)
    _readable(registry, call, schema)
    ids = lookups.list_referrers(registry.state, schema, deleted=deleted)
    return json_reply(_page(call).of(ids, SCHEMAS_LIMIT_MAX))


async def find_metadata(registry: SchemaRegistry, call: Call) -> Reply:
    """Return the newest version with these properties in its metadata."""
    registry.access.check(call.identity, READ, call.subject)
    query = call.target.query
    pairs = dict(zip(query.get("key", ()), query.get("value", ()), strict=False))

    def answer(state: RegistryState, results: Results) -> Json:
        schema = lookups.find_metadata(
            state, call.subject, pairs, deleted=call.target.flag("deleted")
        )
        return _version_reply(state, call, _readable(registry, call, schema), results)

    return json_reply(await registry.read(answer))


async def look_up(registry: SchemaRegistry, call: Call) -> Reply:
    """Return the version that has the content of the request."""
    registry.access.check(call.identity, READ, call.subject)
    body = call.read(RegisterRequest)
    _check_references(registry, call, body)
    request = Registration(call.subject, body, call.target.flag("normalize"))

    def answer(state: RegistryState, results: Results) -> Json:
        deleted = call.target.flag("deleted")
        schema = lookups.look_up(state, request, results, registry.defaults, deleted=deleted)
        reply = _version_reply(state, call, _readable(registry, call, schema), results)
        text = None if call.target.text("format") else echoed_text(body)
        return reply if text is None else {**reply, "schema": text}

    return json_reply(await registry.read(answer))


async def register(registry: SchemaRegistry, call: Call) -> Reply:
    """Register a schema. One that exists is answered by any node, without a write."""
    registry.access.check(call.identity, WRITE, call.subject)
    body = call.read(RegisterRequest)
    subject = replace_alias(registry.state, call.subject)
    registry.access.check(call.identity, WRITE, subject)
    _check_references(registry, call, body)
    target = call.target
    request = Registration(subject, body, target.flag("normalize"), target.flag("force"))

    def existing(state: RegistryState, results: Results) -> Json | None:
        schema = lookups.find_registered(state, request, results, registry.defaults)
        return None if schema is None else _registered(state, call, schema, results)

    is_reader = registry.access.may(call.identity, READ, subject, is_audited=False)

    def decide(state: RegistryState, results: Results) -> Decision:
        try:
            decision = decide_registration(state, request, results, registry.defaults)
        except errors.Rejection as rejection:
            raise rejection if is_reader else errors.without_details(rejection, subject) from None
        return decision if is_reader else without_content(decision, body)

    # Before the mode is checked: serializers that register what exists work while it is read-only.
    reply = await registry.read(existing)
    if reply is not None:
        return json_reply(reply if is_reader else own_members(reply, body))
    return await registry.change(call, decide, is_repeatable=True)


def _registered(state: RegistryState, call: Call, schema: StoredSchema, results: Results) -> Json:
    text = lookups.formatted(state, schema, call.target.text("format"), results)
    echoed = echoed_text(call.read(RegisterRequest)) if text is None else text
    return registered_reply(schema, text=echoed)


async def change_tags(registry: SchemaRegistry, call: Call) -> Reply:
    """Add tags to a schema, and remove others, as a new version. The reply has its text."""
    for operation in (READ, WRITE):
        registry.access.check(call.identity, operation, call.subject)
    version, body = parse_version(call.names[1]), call.read(TagsRequest)

    def decide(state: RegistryState, results: Results) -> Decision:
        schema = lookups.find_version(state, call.subject, version)
        if schema.subject != call.subject:  # by an alias, or in another context
            for operation in (READ, WRITE):
                registry.access.check(call.identity, operation, schema.subject)
        return decide_tags(state, call.subject, version, body, results, registry.defaults)

    return await registry.change(call, decide)


async def delete_subject(registry: SchemaRegistry, call: Call) -> Reply:
    """Delete a subject; by an alias, the one that it stands for."""
    subject = _deletable(registry, call)
    is_permanent = call.target.flag("permanent")
    return await registry.change(
        call,
        lambda state, results: decide_subject_deletion(state, subject, is_permanent=is_permanent),
    )


def _deletable(registry: SchemaRegistry, call: Call) -> str:
    """Return the subject of a deletion. Raises a Rejection unless the client may delete it."""
    subject = replace_alias(registry.state, call.subject)
    for name in (call.subject, subject):
        registry.access.check(call.identity, DELETE, name)
    return subject


async def delete_version(registry: SchemaRegistry, call: Call) -> Reply:
    """Delete a version."""
    subject = _deletable(registry, call)
    version, is_permanent = parse_version(call.names[1]), call.target.flag("permanent")
    return await registry.change(
        call,
        lambda state, results: decide_version_deletion(
            state, subject, version, is_permanent=is_permanent
        ),
    )


# -- schemas by id ------------------------------------------------------------------------


async def list_schemas(registry: SchemaRegistry, call: Call) -> Reply:
    """List versions of all subjects."""
    target = call.target
    wanted = SchemaFilter(
        target.text("subjectPrefix"),
        target.flag("deleted"),
        target.flag("latestOnly"),
        target.text("ruleType"),
        target.flag("aliases"),
    )

    def reads(subject: str) -> bool:
        return registry.access.may(call.identity, READ, subject, is_audited=False)

    page = _page(call)
    return json_reply(lookups.list_schemas(registry.state, wanted, reads, page, SCHEMAS_LIMIT_MAX))


def _with_id(registry: SchemaRegistry, call: Call) -> list[StoredSchema]:
    """Return the versions with the id of the path that the client may read."""
    text = call.names[0]
    if not (text.isascii() and text.isdecimal() and len(text) < 11):
        raise errors.Rejection(404, "HTTP 404 Not Found")
    subject = replace_alias(registry.state, normalise_subject(call.target.text("subject")))
    schemas = lookups.find_id(registry.state, int(text), subject)
    access = registry.access
    allowed = [
        schema
        for schema in schemas
        if access.may(call.identity, READ, schema.subject, is_audited=False)
    ]
    if schemas and not allowed:
        # Without the name of the subject, which the client may not know.
        raise errors.Rejection(40301, "User is denied operation Read on the schema")
    return allowed


async def get_id(registry: SchemaRegistry, call: Call) -> Reply:
    """Return the schema with an id."""
    schemas = _with_id(registry, call)
    if not schemas:
        raise errors.schema_not_found(call.names[0])
    schema = schemas[0]

    def answer(state: RegistryState, results: Results) -> Json:
        text = lookups.formatted(state, schema, call.target.text("format"), results)
        tags = _tags(state, call, schema, results)
        shown = schema
        if call.target.text("referenceFormat") == "qualified":
            shown = lookups.with_qualified_references(schema)
        with_max_id = call.target.flag("fetchMaxId")
        return {**lookups.id_reply(state, shown, text=text, with_max_id=with_max_id), **tags}

    return json_reply(await registry.read(answer))


async def get_id_text(registry: SchemaRegistry, call: Call) -> Reply:
    """Return the text of the schema with an id."""
    schemas = _with_id(registry, call)
    if not schemas:
        raise errors.schema_not_found(call.names[0])

    def answer(state: RegistryState, results: Results) -> str:
        text = lookups.formatted(state, schemas[0], call.target.text("format"), results)
        return schemas[0].schema if text is None else text

    return text_reply(await registry.read(answer))


async def id_subjects(registry: SchemaRegistry, call: Call) -> Reply:
    """List the subjects that have an id."""
    schemas = _with_id(registry, call)
    if not schemas:
        raise errors.schema_not_found()
    deleted = call.target.flag("deleted")
    names = sorted({schema.subject for schema in schemas if deleted or not schema.deleted})
    return json_reply(_page(call).of(names, LIMIT_MAX))


async def id_versions(registry: SchemaRegistry, call: Call) -> Reply:
    """List the versions that have an id."""
    schemas = _with_id(registry, call)
    if not schemas:
        raise errors.schema_not_found()
    deleted = call.target.flag("deleted")
    rows = [
        {"subject": schema.subject, "version": schema.version}
        for schema in sorted(schemas, key=lambda schema: (schema.subject, schema.version))
        if deleted or not schema.deleted
    ]
    return json_reply(_page(call).of(rows, LIMIT_MAX))


def _with_guid(registry: SchemaRegistry, call: Call) -> list[tuple[str, StoredSchema]]:
    """Return a version of each context that has the guid of the path and may be read."""
    state, rows = registry.state, []
    for context, schema_id in lookups.find_guid(state, call.names[0]):
        for place in state.places(context, schema_id):
            if registry.access.may(call.identity, READ, place[0], is_audited=False):
                rows.append((context, state.stored(place)))
                break
    return rows


async def get_guid(registry: SchemaRegistry, call: Call) -> Reply:
    """Return the schema with a guid."""
    rows = _with_guid(registry, call)
    if not rows:
        raise errors.schema_not_found(call.names[0])
    schema = rows[0][1]

    def answer(state: RegistryState, results: Results) -> Json:
        text = lookups.formatted(state, schema, call.target.text("format"), results)
        return lookups.id_reply(state, schema, text=text)

    return json_reply(await registry.read(answer))


async def guid_ids(registry: SchemaRegistry, call: Call) -> Reply:
    """List the ids of a guid, by context."""
    rows = _with_guid(registry, call)
    return json_reply([{"context": context, "id": schema.id} for context, schema in rows])


# -- compatibility ------------------------------------------------------------------------


async def check_compatibility(registry: SchemaRegistry, call: Call) -> Reply:
    """Say whether a schema could be registered."""
    registry.access.check(call.identity, READ, call.subject)
    registry.access.check(call.identity, READ, replace_alias(registry.state, call.subject))
    version = parse_version(call.names[1]) if len(call.names) > 1 else None
    is_verbose = call.target.flag("verbose")
    body = call.read(RegisterRequest)
    _check_references(registry, call, body)
    request = Registration(call.subject, body, call.target.flag("normalize"))

    def answer(state: RegistryState, results: Results) -> list[str]:
        if version is not None:
            subject = replace_alias(state, call.subject)
            compared = lookups.compared_version(state, subject, version)
            if compared is not None:
                _readable(registry, call, compared)
        return lookups.check_compatibility(state, request, version, results, registry.defaults)

    try:
        messages = await registry.read(answer)
    except errors.Rejection as rejection:
        if not is_verbose or rejection.code != errors.invalid_schema("").code:
            raise
        messages = [rejection.message]
    reply: dict[str, Any] = {"is_compatible": not messages}
    return json_reply({**reply, "messages": messages} if is_verbose else reply)


_SETTINGS: Final[dict[str, dict[str, Handler]]] = {
    "config": {"GET": get_config, "PUT": put_config, "DELETE": delete_config},
    "mode": {"GET": get_mode, "PUT": put_mode, "DELETE": delete_mode},
}
ROUTES: Final[dict[str, dict[str, Handler]]] = {
    "": {"GET": root, "POST": root},
    "subjects": {"GET": list_subjects},
    "subjects/*": {"POST": look_up, "DELETE": delete_subject},
    "subjects/*/versions": {"GET": list_versions, "POST": register},
    "subjects/*/versions/*": {"GET": get_version, "DELETE": delete_version},
    "subjects/*/versions/*/schema": {"GET": get_version_text},
    "subjects/*/versions/*/referencedby": {"GET": referenced_by},
    "subjects/*/versions/*/tags": {"POST": change_tags},
    "subjects/*/metadata": {"GET": find_metadata},
    "schemas": {"GET": list_schemas},
    "schemas/types": {"GET": schema_types},
    "schemas/ids/*": {"GET": get_id},
    "schemas/ids/*/schema": {"GET": get_id_text},
    "schemas/ids/*/subjects": {"GET": id_subjects},
    "schemas/ids/*/versions": {"GET": id_versions},
    "schemas/guids/*": {"GET": get_guid},
    "schemas/guids/*/ids": {"GET": guid_ids},
    "compatibility/subjects/*/versions": {"POST": check_compatibility},
    "compatibility/subjects/*/versions/*": {"POST": check_compatibility},
    "config": _SETTINGS["config"],
    "config/*": _SETTINGS["config"],
    "mode": _SETTINGS["mode"],
    "mode/*": _SETTINGS["mode"],
    "contexts": {"GET": contexts},
    "contexts/*": {"DELETE": delete_context},
    "v1/metadata/id": {"GET": server_id},
    "v1/metadata/version": {"GET": server_version},
    "v1/metadata/deployment": {"GET": server_deployment},
}
