"""The table of all paths. Pages, JSON, the OpenAPI page and the tools of assistants follow it."""

from typing import Final

from ottla.console.endpoints import Call, Endpoint, Parameter
from ottla.console.handlers import (
    brokers,
    groups,
    letters,
    messages,
    overview,
    schemas,
    searches,
    security,
    topics,
    transactions,
)
from ottla.console.openapi import api_rows, openapi_document
from ottla.operations.rows import Row

NAVIGATION: Final = (
    ("/", "Overview"),
    ("/topics", "Topics"),
    ("/searches", "Search"),
    ("/groups", "Groups"),
    ("/letters", "Dead letters"),
    ("/schemas", "Schemas"),
    ("/transactions", "Transactions"),
    ("/security", "Security"),
    ("/brokers", "Brokers"),
)

_LIST: Final = (
    Parameter("filter", "Words that a name must contain."),
    Parameter("sort", "The column to sort by; with a dash in front, descending."),
    Parameter("page", "The page, from 1 on."),
    Parameter("size", "Rows of a page, up to 1000."),
)
_RECORDS: Final = (
    Parameter("start", "Where to begin.", choices=messages.STARTS),
    Parameter("offset", "The first offset, with start=offset."),
    Parameter("time", "UTC time or milliseconds since 1970, with start=time."),
    Parameter("partition", "One partition; all without it."),
    Parameter("limit", "Records, up to 500."),
)
_LETTERS: Final = (
    Parameter("reason", "Only letters whose reason contains this text."),
    Parameter("group", "Only letters of this group."),
    Parameter("origin", "Only letters of records of this topic."),
    Parameter("at", "Only the letter at PARTITION:OFFSET."),
)
_CONFIG: Final = (
    Parameter("key", "The setting.", is_required=True),
    Parameter("value", "Its new value."),
    Parameter("reset", "true: use the default again."),
)
_ACL: Final = (
    Parameter("principal", "User:NAME.", is_required=True),
    Parameter("permission", "Allow or deny.", choices=("allow", "deny")),
    Parameter("operation", "What is done.", is_required=True, choices=security.OPERATIONS),
    Parameter("resource", "On what.", is_required=True, choices=security.RESOURCES),
    Parameter("name", "The name of the resource."),
    Parameter("pattern", "How the name is matched.", choices=("literal", "prefixed")),
    Parameter("host", "The client's address; * for all."),
)
_CONFIRM: Final = (Parameter("confirm", "The name again.", is_required=True),)
_EXECUTE: Final = Parameter("execute", "true: do it; otherwise only the plan is returned.")


async def _describe_api(call: Call) -> Row:
    return api_rows(ROUTES)


async def _openapi(call: Call) -> Row:
    return openapi_document(ROUTES)


ROUTES: Final = (
    Endpoint(
        method="GET",
        path="/",
        summary="The cluster: brokers, quorum, and what needs attention.",
        handler=overview.overview,
        template="overview.html",
    ),
    Endpoint(
        method="GET",
        path="/topics",
        summary="List topics.",
        handler=topics.topics,
        template="topics.html",
        parameters=(*_LIST, Parameter("internal", "true: also internal topics.")),
    ),
    Endpoint(
        method="POST",
        path="/topics",
        summary="Create a topic.",
        handler=topics.create,
        parameters=(
            Parameter("name", "The name of the topic.", is_required=True),
            Parameter("partitions", "Partitions; the cluster's default without it."),
            Parameter("replication_factor", "Replicas; the cluster's default without it."),
            Parameter("configs", "Lines of key=value."),
            Parameter("copy_from", "A topic whose settings are copied."),
        ),
    ),
    Endpoint(
        method="GET",
        path="/topics/{topic}",
        summary="One topic: partitions, settings and consumers.",
        handler=topics.topic,
        template="topic.html",
    ),
    Endpoint(
        method="POST",
        path="/topics/{topic}/config",
        summary="Change a setting of a topic.",
        handler=topics.alter_config,
        parameters=_CONFIG,
    ),
    Endpoint(
        method="POST",
        path="/topics/{topic}/partitions",
        summary="Raise the number of partitions.",
        handler=topics.grow,
        parameters=(Parameter("partitions", "The new number.", is_required=True),),
    ),
    Endpoint(
        method="POST",
        path="/topics/{topic}/purge",
        summary="Delete all records of a topic that exist now.",
        handler=topics.purge,
        parameters=_CONFIRM,
    ),
    Endpoint(
        method="POST",
        path="/topics/{topic}/delete",
        summary="Delete a topic.",
        handler=topics.delete,
        parameters=_CONFIRM,
    ),
    Endpoint(
        method="GET",
        path="/topics/{topic}/messages",
        summary="Records of a topic.",
        handler=messages.messages,
        template="messages.html",
        parameters=_RECORDS,
    ),
    Endpoint(
        method="POST",
        path="/topics/{topic}/messages",
        summary="Send a record.",
        handler=messages.produce,
        parameters=(
            Parameter("key", "The key; none without it."),
            Parameter("value", "The value."),
            Parameter("null_value", "true: send no value (a tombstone)."),
            Parameter("headers", "Lines of name=value, or an object."),
            Parameter("partition", "The partition; by the key without it."),
            Parameter("format", "json: check the value.", choices=("text", "json")),
        ),
    ),
    Endpoint(
        method="GET",
        path="/topics/{topic}/download",
        summary="Records of a topic as a file.",
        handler=messages.download,
        parameters=(*_RECORDS, Parameter("format", "The form.", choices=("jsonl", "csv"))),
    ),
    Endpoint(
        method="GET",
        path="/topics/{topic}/tail",
        summary="Records as they are written, as server-sent events.",
        handler=messages.tail,
        parameters=(Parameter("partition", "One partition; all without it."),),
    ),
    Endpoint(
        method="GET",
        path="/topics/{topic}/messages/{partition}/{offset}",
        summary="One record.",
        handler=messages.message,
        template="message.html",
    ),
    Endpoint(
        method="GET",
        path="/searches",
        summary="Your searches.",
        handler=searches.searches,
        template="searches.html",
    ),
    Endpoint(
        method="POST",
        path="/searches",
        summary="Start a search; all conditions must hold.",
        handler=searches.start,
        parameters=(
            Parameter("topic", "The topic.", is_required=True),
            Parameter("text", "Characters in key, value or a header."),
            Parameter("key", "The key."),
            Parameter("header", "name=value, or name."),
            Parameter("json", "A comparison such as $.user.id >= 5."),
            Parameter("partition", "One partition; all without it."),
            Parameter("offset", "The first offset."),
            Parameter("since", "UTC time or milliseconds since 1970."),
        ),
    ),
    Endpoint(
        method="GET",
        path="/searches/{search}",
        summary="How far a search is, and its hits.",
        handler=searches.search,
        template="search.html",
    ),
    Endpoint(
        method="POST",
        path="/searches/{search}/cancel",
        summary="Stop a search.",
        handler=searches.cancel,
    ),
    Endpoint(
        method="POST",
        path="/searches/{search}/resume",
        summary="Continue a search where it stopped.",
        handler=searches.resume,
    ),
    Endpoint(
        method="GET",
        path="/groups",
        summary="List groups of all kinds.",
        handler=groups.groups,
        template="groups.html",
        parameters=(*_LIST, Parameter("type", "classic, consumer, share or streams.")),
    ),
    Endpoint(
        method="GET",
        path="/groups/{group}",
        summary="One group: members, assignment, lag, and what it waits for.",
        handler=groups.group,
        template="group.html",
    ),
    Endpoint(
        method="GET",
        path="/groups/{group}/explain",
        summary="Why a group waits.",
        handler=groups.explain,
    ),
    Endpoint(
        method="POST",
        path="/groups/{group}/reset",
        summary="Plan new offsets of a group, and set them.",
        handler=groups.reset,
        template="reset.html",
        is_preview=True,
        parameters=(
            Parameter("to", "The target.", choices=groups.TARGETS),
            Parameter("value", "The offset, time or number of records."),
            Parameter("topics", "topic or topic:0,2, with blanks between; all without it."),
            _EXECUTE,
        ),
    ),
    Endpoint(
        method="POST",
        path="/groups/{group}/delete",
        summary="Delete a group.",
        handler=groups.delete,
        parameters=_CONFIRM,
    ),
    Endpoint(
        method="GET",
        path="/letters",
        summary="Topics with dead letters, and their reasons.",
        handler=letters.letter_topics,
        template="letter_topics.html",
    ),
    Endpoint(
        method="GET",
        path="/letters/{topic}",
        summary="Dead letters that wait.",
        handler=letters.letters,
        template="letters.html",
        parameters=_LETTERS,
    ),
    Endpoint(
        method="POST",
        path="/letters/{topic}",
        summary="Count the letters that a redrive or drop selects, and do it.",
        handler=letters.handle,
        template="redrive.html",
        is_preview=True,
        parameters=(
            Parameter("action", "What to do.", choices=("redrive", "drop")),
            *_LETTERS,
            Parameter("to", "Another topic than that of origin."),
            _EXECUTE,
        ),
    ),
    Endpoint(
        method="GET",
        path="/schemas",
        summary="List subjects.",
        handler=schemas.subjects,
        template="subjects.html",
        parameters=_LIST,
    ),
    Endpoint(
        method="GET",
        path="/schemas/{subject}",
        summary="One subject: versions, text and difference.",
        handler=schemas.subject,
        template="subject.html",
        parameters=(
            Parameter("version", "The version; the newest without it."),
            Parameter("base", "The version to compare with."),
        ),
    ),
    Endpoint(
        method="POST",
        path="/schemas/{subject}",
        summary="Check a schema for compatibility, and register it.",
        handler=schemas.check,
        template="check.html",
        is_preview=True,
        parameters=(
            Parameter("schema", "Its text.", is_required=True),
            Parameter("type", "Its language.", choices=schemas.KINDS),
            _EXECUTE,
        ),
    ),
    Endpoint(
        method="GET",
        path="/transactions",
        summary="List transactional ids.",
        handler=transactions.transactions,
        template="transactions.html",
        parameters=_LIST,
    ),
    Endpoint(
        method="GET",
        path="/transactions/{transaction}",
        summary="One transactional id.",
        handler=transactions.transaction,
        template="transaction.html",
    ),
    Endpoint(
        method="POST",
        path="/transactions/{transaction}/abort",
        summary="Abort a transaction; its producer is fenced.",
        handler=transactions.abort,
        parameters=_CONFIRM,
    ),
    Endpoint(
        method="GET",
        path="/security",
        summary="Users, access control entries and quotas; explain a decision.",
        handler=security.security,
        template="security.html",
        parameters=(
            Parameter("principal", "Whose request; without it nothing is explained."),
            Parameter("operation", "What is done.", choices=security.OPERATIONS),
            Parameter("resource", "On what.", choices=security.RESOURCES),
            Parameter("name", "The name of the resource."),
            Parameter("host", "The client's address."),
        ),
    ),
    Endpoint(
        method="POST",
        path="/security/acls",
        summary="Create an access control entry.",
        handler=security.add_acl,
        parameters=_ACL,
    ),
    Endpoint(
        method="POST",
        path="/security/acls/delete",
        summary="Delete an access control entry.",
        handler=security.remove_acl,
        parameters=_ACL,
    ),
    Endpoint(
        method="GET",
        path="/brokers",
        summary="Brokers, quorum, features and reassignments.",
        handler=brokers.brokers,
        template="brokers.html",
    ),
    Endpoint(
        method="GET",
        path="/brokers/{broker}",
        summary="One broker: settings and log directories.",
        handler=brokers.broker,
        template="broker.html",
    ),
    Endpoint(
        method="POST",
        path="/brokers/{broker}/config",
        summary="Change a setting of a broker.",
        handler=brokers.alter_config,
        parameters=_CONFIG,
    ),
    Endpoint(
        method="GET",
        path="/api",
        summary="The JSON API.",
        handler=_describe_api,
        template="api.html",
    ),
    Endpoint(
        method="GET",
        path="/openapi",
        summary="The JSON API as an OpenAPI document.",
        handler=_openapi,
    ),
)
