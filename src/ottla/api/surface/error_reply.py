"""The error response of any API and version, where there is one.

Derived from the schemas: a top-level error code is set. Where the version has none, the error codes
are in the elements of some array, and the elements of the request are mirrored into it: each gets
the same code and keeps what identifies it (topic, partition, group, ...). Identifying fields have
different names in different messages; `_SAME` lists them. Some old versions have no error field at
all, and the connection has to be closed. Tests compare this with the error responses of Apache
Kafka's own request classes, version by version.
"""

from functools import cache
from itertools import chain
from typing import Final

from ottla.api.surface.replies import ITEMS_PER_STEP, Steps, batched, collect, finish
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import (
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    describe_client_quotas,
    describe_user_scram_credentials,
    response_class,
    write_txn_markers,
)
from ottla.protocol.messages import list_partition_reassignments as reassignments
from ottla.protocol.messages.fetch import PartitionData
from ottla.protocol.schema import Field, Kind, Message, covers

# Names of one field. The request is searched for the name in the response, then for the others.
_SAME: Final = (
    ("partition_index", "partition", "index", "partition_id"),
    ("name", "topic", "topic_name", "user"),
    ("topic_id",),
    ("group_id",),
    ("key",),
    ("transactional_id",),
    ("producer_id",),
    ("resource_type",),
    ("resource_name",),
    ("entity",),
)
_CODES: Final = ("error_code", "partition_error_code")

# Fields that are -1, not 0, in an error response: an unknown offset or node.
_UNKNOWN: Final = frozenset(
    {
        *("base_offset", "high_watermark", "committed_offset", "low_watermark"),
        *("node_id", "port"),
    }
)
# Fields that are null in an error response, in versions where they can be.
_NULL: Final = "protocol_name"
# Clients expect these in the elements although there is a top-level code.
_IN_BOTH: Final = frozenset(
    {
        ApiKey.METADATA,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    }
)
_SHARE_STATE: Final = frozenset(
    {
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    }
)
# A topic without partitions stays in the response to these.
_KEEPS_EMPTY_TOPICS: Final = _SHARE_STATE | frozenset(
    {
        ApiKey.OFFSET_COMMIT,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ELECT_LEADERS,
        ApiKey.WRITE_TXN_MARKERS,
    }
)
# An error of these always has a message.
_NAMES_ERROR: Final = _SHARE_STATE | {ApiKey.DESCRIBE_ACLS}
# A request of these that names nothing is answered with nothing.
_MAY_BE_EMPTY: Final = _KEEPS_EMPTY_TOPICS | frozenset(
    {
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    }
)
# Its old versions list directories, and the request has none.
_NOT_MIRRORED: Final = ApiKey.DESCRIBE_LOG_DIRS


def error_reply(
    key: ApiKey, version: int, request: Message | None, code: ErrorCode, message: str | None = None
) -> Message | None:
    """Return the response to ``request`` with the error ``code``, or None where there is none.

    ``request`` is None when it was never decoded; only a top-level code can be set then.
    ``message`` is sent where the version has a field for it.
    """
    return finish(error_reply_steps(key, version, request, code, message))


def error_reply_steps(
    key: ApiKey, version: int, request: Message | None, code: ErrorCode, message: str | None = None
) -> Steps[Message | None]:
    """Return the response as `error_reply` does, in steps: a request may name many things."""
    if message is None and key in _NAMES_ERROR:
        message = code.name
    response = yield from _reply(key, version, request, code, message)
    if response is not None:
        yield from _finish(response, request)
    return response


def _finish(response: Message, request: Message | None) -> Steps[None]:
    """Change what Kafka's error responses of single APIs have besides the error."""
    match response:
        case describe_client_quotas.DescribeClientQuotasResponse():
            response.entries = None
        case describe_user_scram_credentials.DescribeUserScramCredentialsResponse():
            for results in batched(response.results):
                for result in results:
                    result.user = ""
                yield
        case write_txn_markers.WriteTxnMarkersResponse():
            last: dict[int, write_txn_markers.WritableTxnMarkerResult] = {}
            for markers in batched(response.markers):
                last.update((marker.producer_id, marker) for marker in markers)
                yield
            response.markers = list(last.values())
            for marker in response.markers:
                marker.topics = yield from _merged(marker.topics)
        case reassignments.ListPartitionReassignmentsResponse():
            assert request is None or isinstance(
                request, reassignments.ListPartitionReassignmentsRequest
            )
            for topic in () if request is None else request.topics or ():
                ongoing = map(reassignments.OngoingPartitionReassignment, topic.partition_indexes)
                partitions = yield from collect(ongoing)
                named = reassignments.OngoingTopicReassignment(topic.name, partitions)
                response.topics.append(named)
                yield
        case _:
            pass


def _merged(
    topics: list[write_txn_markers.WritableTxnMarkerTopicResult],
) -> Steps[list[write_txn_markers.WritableTxnMarkerTopicResult]]:
    """Return every topic that has partitions once, with each of them once."""
    found: dict[str, dict[int, write_txn_markers.WritableTxnMarkerPartitionResult]] = {}
    for topic in topics:
        for group in batched(topic.partitions):
            rows = found.setdefault(topic.name, {})
            rows.update((partition.partition_index, partition) for partition in group)
            yield
    result = write_txn_markers.WritableTxnMarkerTopicResult
    return (
        yield from collect(
            result(name, list(partitions.values())) for name, partitions in found.items()
        )
    )


def _reply(
    key: ApiKey, version: int, request: Message | None, code: ErrorCode, message: str | None
) -> Steps[Message | None]:
    response = response_class(key)()
    at_top = _set_code(response, version, code, message)
    if request is None or key is _NOT_MIRRORED or (at_top and key not in _IN_BOTH):
        return response if at_top else None
    keeps_empty = key in _KEEPS_EMPTY_TOPICS
    source = yield from _lined_up(key, request)
    mirrored = yield from _mirror(source, response, version, (code, message), keeps_empty)
    return response if at_top or mirrored or key in _MAY_BE_EMPTY else None


def _lined_up(key: ApiKey, request: Message) -> Steps[Message]:
    """Return a request whose first array matches that of the response, as most do unchanged."""
    if key is ApiKey.ALTER_REPLICA_LOG_DIRS:
        assert isinstance(request, alter_replica_log_dirs.AlterReplicaLogDirsRequest)
        named_topics = (topic for directory in request.dirs for topic in directory.topics)
        topics = yield from collect(named_topics)
        return alter_replica_log_dirs.AlterReplicaLogDir(topics=topics)
    if key is ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
        scram = alter_user_scram_credentials
        assert isinstance(request, scram.AlterUserScramCredentialsRequest)
        named: dict[str, scram.ScramCredentialDeletion] = {}
        deleted = (deletion.name for deletion in request.deletions)
        for users in batched(chain(deleted, (upsertion.name for upsertion in request.upsertions))):
            named.update((user, scram.ScramCredentialDeletion(user)) for user in users)
            yield
        return scram.AlterUserScramCredentialsRequest(list(named.values()))
    return request


def _set_code(target: Message, version: int, code: ErrorCode, message: str | None) -> bool:
    fields, names = _fields(type(target), version), _names(type(target), version)
    for name in names & _UNKNOWN:
        setattr(target, name, -1)
    for field in fields:
        if field.name == _NULL and field.nullable and covers(field.nullable, version):
            setattr(target, _NULL, None)
    if isinstance(target, PartitionData):
        target.records = b""
    for name in _CODES:
        if name in names:
            setattr(target, name, int(code))
            if "error_message" in names:
                target.error_message = message  # type: ignore[attr-defined]
            return True
    return False


def _mirror(
    source: Message,
    target: Message,
    version: int,
    error: tuple[ErrorCode, str | None],
    keeps_empty: bool,
) -> Steps[bool]:
    """Fill the array of ``target`` that has an error code; say whether there is one.

    ``keeps_empty`` keeps elements that have no place for the code, since nothing is below them.
    """
    into = _way_to_code(type(target), version)
    if into is None or into.type.element is None or into.type.element.struct is None:
        return False
    elements = []
    for item in _array_like(source, into.name, version):
        element = into.type.element.struct()
        _name_it(element, item, version)
        is_kept = _set_code(element, version, *error)
        if not is_kept and isinstance(item, Message):
            is_kept = yield from _mirror(item, element, version, error, keeps_empty)
            is_kept = is_kept or keeps_empty
        if is_kept:
            elements.append(element)
        if len(elements) % ITEMS_PER_STEP == 0:
            yield
    setattr(target, into.name, elements)
    return bool(elements)


def _array_like(source: Message, name: str, version: int) -> list[object]:
    """Return the array of ``source`` with that name, else its first one."""
    arrays = [f.name for f in _fields(type(source), version) if f.type.kind is Kind.ARRAY]
    if not arrays:
        return []
    return getattr(source, name if name in arrays else arrays[0]) or []


def _name_it(element: Message, item: object, version: int) -> None:
    """Copy what identifies ``item``, a struct or the name itself, into ``element``.

    A null name becomes the empty one: most responses cannot have null there.
    """
    if not isinstance(item, Message):
        name = next((name for name, _ in _identifying(type(element), version)), None)
        if name is not None:
            setattr(element, name, item)
        return
    there = _names(type(item), version)
    for name, spellings in _identifying(type(element), version):
        for spelling in spellings:
            if spelling in there:
                if getattr(item, spelling) is not None:
                    setattr(element, name, getattr(item, spelling))
                break


@cache
def _identifying(kind: type[Message], version: int) -> list[tuple[str, tuple[str, ...]]]:
    """Return the fields that identify an element, each with its names in requests."""
    return [
        (field.name, (field.name, *spellings))
        for field in _fields(kind, version)
        if (spellings := next((same for same in _SAME if field.name in same), ()))
    ]


@cache
def _names(kind: type[Message], version: int) -> frozenset[str]:
    return frozenset(field.name for field in _fields(kind, version))


@cache
def _way_to_code(kind: type[Message], version: int) -> Field | None:
    """Return the first array whose elements, or those below them, have an error code."""
    return next((f for f in _fields(kind, version) if _leads_to_code(f, version)), None)


def _leads_to_code(field: Field, version: int) -> bool:
    element = field.type.element
    if element is None or element.struct is None:
        return False
    fields = [f for f in element.struct.SCHEMA.fields if covers(f.versions, version)]
    return any(f.name in _CODES or _leads_to_code(f, version) for f in fields)


@cache
def _fields(kind: type[Message], version: int) -> list[Field]:
    return [field for field in kind.SCHEMA.fields if covers(field.versions, version)]
