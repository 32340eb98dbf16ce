"""ACL decisions against a plain restatement of Kafka's rules, and the cache around them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.api.groups.group_access import everybody
from ottla.api.security.access import OPEN
from ottla.api.surface.routes import Caller
from ottla.runtime.ports import Address
from ottla.security.acl import Acl, AclOperation, PatternType, PermissionType, ResourceType, Subject
from ottla.security.acl_index import AclIndex, Outcome
from ottla.security.authorizer import CACHE_MAX, AclAuthorizer

ALICE = Subject("User:alice", "10.0.0.1")
TOPIC = ResourceType.TOPIC
READ, WRITE, DESCRIBE, ALL = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.ALL,
)


def acl(
    name: str,
    operation: AclOperation,
    *,
    deny: bool = False,
    prefixed: bool = False,
    principal: str = "User:alice",
    host: str = "*",
    resource_type: ResourceType = TOPIC,
) -> Acl:
    return Acl(
        resource_type,
        name,
        PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        principal,
        host,
        operation,
        PermissionType.DENY if deny else PermissionType.ALLOW,
    )


@pytest.mark.parametrize(
    ("acls", "operation", "name", "outcome"),
    [
        ([], READ, "t", Outcome.NO_ENTRY),
        ([acl("t", READ)], READ, "t", Outcome.ALLOWED),
        ([acl("t", READ)], READ, "T", Outcome.NO_ENTRY),
        ([acl("t", READ)], WRITE, "t", Outcome.DENIED),
        ([acl("*", READ)], READ, "t", Outcome.ALLOWED),
        ([acl("or", READ, prefixed=True)], READ, "orders", Outcome.ALLOWED),
        ([acl("orders", READ, prefixed=True)], READ, "orders", Outcome.ALLOWED),
        ([acl("orders-", READ, prefixed=True)], READ, "orders", Outcome.NO_ENTRY),
        ([acl("*", READ, prefixed=True)], READ, "orders", Outcome.NO_ENTRY),
        ([acl("*", READ, prefixed=True)], READ, "*x", Outcome.ALLOWED),
        ([acl("t", ALL), acl("t", READ, deny=True)], READ, "t", Outcome.DENIED),
        ([acl("t", READ, deny=True), acl("t", ALL)], READ, "t", Outcome.DENIED),
        ([acl("t", READ), acl("*", ALL, deny=True)], READ, "t", Outcome.DENIED),
        ([acl("t", READ), acl("", ALL, deny=True, prefixed=True)], READ, "t", Outcome.DENIED),
        ([acl("t", READ), acl("t", WRITE, deny=True)], READ, "t", Outcome.ALLOWED),
        ([acl("t", READ)], DESCRIBE, "t", Outcome.ALLOWED),
        ([acl("t", AclOperation.ALTER)], DESCRIBE, "t", Outcome.ALLOWED),
        ([acl("t", AclOperation.CREATE)], DESCRIBE, "t", Outcome.DENIED),
        ([acl("t", READ, deny=True), acl("t", WRITE)], DESCRIBE, "t", Outcome.ALLOWED),
        (
            [acl("t", AclOperation.ALTER_CONFIGS)],
            AclOperation.DESCRIBE_CONFIGS,
            "t",
            Outcome.ALLOWED,
        ),
        ([acl("t", READ, principal="User:*")], READ, "t", Outcome.ALLOWED),
        ([acl("t", READ, principal="User:bob")], READ, "t", Outcome.DENIED),
        ([acl("t", READ, principal="Group:alice")], READ, "t", Outcome.DENIED),
        ([acl("t", READ, host="10.0.0.1")], READ, "t", Outcome.ALLOWED),
        ([acl("t", READ, host="10.0.0.2")], READ, "t", Outcome.DENIED),
        ([acl("t", READ, resource_type=ResourceType.GROUP)], READ, "t", Outcome.NO_ENTRY),
        ([acl("\u0430", READ)], READ, "a", Outcome.NO_ENTRY),  # a Cyrillic look-alike
    ],
)
def test_decision_follows_kafkas_rules(
    acls: list[Acl], operation: AclOperation, name: str, outcome: Outcome
) -> None:
    assert AclIndex(acls).decide(ALICE, operation, TOPIC, name) is outcome


NAMES = st.sampled_from(["", "*", "a", "ab", "abc", "b"])
ACLS = st.builds(
    acl,
    NAMES,
    st.sampled_from([READ, WRITE, DESCRIBE, ALL]),
    deny=st.booleans(),
    prefixed=st.booleans(),
    principal=st.sampled_from(["User:alice", "User:bob", "User:*"]),
    host=st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
)


def restated(acls: list[Acl], subject: Subject, operation: AclOperation, name: str) -> Outcome:
    """Kafka's rule by looking at every entry."""

    def is_of_resource(each: Acl) -> bool:
        if each.pattern_type == PatternType.PREFIXED:
            return name.startswith(each.resource_name)
        return each.resource_name in (name, "*")

    entries = [each for each in acls if is_of_resource(each)]
    mine = [
        each
        for each in entries
        if each.principal in (subject.principal, "User:*") and each.host in (subject.host, "*")
    ]
    implied = {READ, WRITE} if operation is DESCRIBE else set()
    if any(e.permission_type == 2 and e.operation in (operation, ALL) for e in mine):
        return Outcome.DENIED
    if any(e.permission_type == 3 and e.operation in {operation, ALL} | implied for e in mine):
        return Outcome.ALLOWED
    return Outcome.DENIED if entries else Outcome.NO_ENTRY


@given(st.lists(ACLS, max_size=8), st.data())
def test_index_agrees_with_a_scan_of_all_entries_after_any_changes(
    acls: list[Acl], data: st.DataObject
) -> None:
    index, present = AclIndex(), []
    for each in acls:
        index.add(each)
        present.append(each)
        if data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(present))
            index.remove(gone)
            present.remove(gone)
    for name in ("a", "ab", "abc", "b", "c"):
        for operation in (READ, WRITE, DESCRIBE):
            expected = restated(present, ALICE, operation, name)
            assert index.decide(ALICE, operation, TOPIC, name) is expected


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([acl("t", WRITE)], True),
        ([acl("t", ALL)], True),
        ([acl("t", READ)], False),
        ([acl("*", WRITE)], True),
        ([acl("t", WRITE), acl("t", WRITE, deny=True)], False),
        ([acl("t", WRITE), acl("*", WRITE, deny=True)], False),
        ([acl("t", WRITE), acl("t", WRITE, deny=True, prefixed=True)], False),
        ([acl("ta", WRITE, prefixed=True), acl("t", WRITE, deny=True, prefixed=True)], False),
        ([acl("t", WRITE, prefixed=True), acl("t", WRITE, deny=True)], True),
        ([acl("*", WRITE), acl("t", WRITE, deny=True)], True),
        ([acl("*", WRITE), acl("t", WRITE, deny=True, prefixed=True)], True),
        ([acl("t", WRITE, principal="User:bob")], False),
    ],
)
def test_some_resource_is_allowed_unless_a_denial_covers_it(acls: list[Acl], allowed: bool) -> None:
    authorizer = AclAuthorizer()
    authorizer.load(acls)
    assert authorizer.allows_any(ALICE, WRITE, TOPIC) is allowed


def test_nobody_but_a_super_user_is_allowed_before_the_acls_are_loaded() -> None:
    authorizer = AclAuthorizer(["User:admin"], allow_if_no_acl=True)
    assert not authorizer.allows(ALICE, READ, TOPIC, "t")
    assert not authorizer.allows_any(ALICE, READ, TOPIC)
    assert authorizer.allows(Subject("User:admin", "h"), READ, TOPIC, "t")
    authorizer.load([])
    assert authorizer.allows(ALICE, READ, TOPIC, "t")
    assert authorizer.allows_any(ALICE, READ, TOPIC)


def test_super_user_overrules_denials() -> None:
    authorizer = AclAuthorizer(["User:alice"])
    authorizer.load([acl("*", ALL, deny=True)])
    assert authorizer.allows(ALICE, READ, TOPIC, "t")


def test_change_of_acls_drops_cached_decisions() -> None:
    authorizer = AclAuthorizer()
    authorizer.load([])
    assert not authorizer.allows(ALICE, READ, TOPIC, "t")
    version = authorizer.version
    authorizer.update([acl("t", READ)], [])
    assert authorizer.version != version
    assert authorizer.allows(ALICE, READ, TOPIC, "t")
    authorizer.update([], [acl("t", READ)])
    assert not authorizer.allows(ALICE, READ, TOPIC, "t")


def test_cache_is_bounded() -> None:
    authorizer = AclAuthorizer()
    authorizer.load([acl("t", READ)])
    for number in range(CACHE_MAX + 10):
        authorizer.allows(ALICE, READ, TOPIC, str(number))
    assert len(authorizer._decisions) <= CACHE_MAX
    assert authorizer.allows(ALICE, READ, TOPIC, "t")


def test_access_without_an_authorizer_allows_everything() -> None:
    caller = Caller("User:alice", None, Address("192.0.2.1", 1), "PLAINTEXT")
    assert OPEN.allows(caller, READ, TOPIC, "t")
    assert OPEN.allows_any(caller, READ, TOPIC)
    assert OPEN.may(READ, TOPIC) is everybody
    assert not OPEN.is_enabled


def test_audit_line_escapes_names_from_clients() -> None:
    authorizer = AclAuthorizer()
    authorizer.load([])
    authorizer.allows(Subject("User:eve\nprincipal='User:root'", "h"), READ, TOPIC, "a\r\x1b[2J")
    ((is_allowed, line),) = authorizer.trail.drain(is_final=True)
    assert not is_allowed
    assert "\n" not in line and "\x1b" not in line
    assert "outcome=denied operation=READ" in line


# -- hosts -----------------------------------------------------------------------------------------

LOOPBACK_6 = "0:0:0:0:0:0:0:1"
LINK_LOCAL = "fe80:0:0:0:0:0:0:1"


@pytest.mark.parametrize("deny", [False, True])
@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "::ffff:127.0.0.1"),
        ("127.0.0.1", "::ffff:7f00:1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("::1", LOOPBACK_6),
        (LOOPBACK_6, LOOPBACK_6),
        (LOOPBACK_6, "::1"),
        ("2001:DB8::0:A", "2001:db8:0:0:0:0:0:a"),
        ("fe80::1", f"{LINK_LOCAL}%2"),
        ("fe80::1%2", f"{LINK_LOCAL}%2"),
    ],
)
def test_entry_applies_to_its_host_in_every_spelling(host: str, client: str, deny: bool) -> None:
    index = AclIndex([acl("t", ALL), acl("t", READ, host=host, deny=True)])
    if not deny:
        index = AclIndex([acl("t", READ, host=host)])
    outcome = index.decide(Subject("User:alice", client), READ, TOPIC, "t")
    assert outcome is (Outcome.DENIED if deny else Outcome.ALLOWED)
    assert index.allows_some(Subject("User:alice", client), READ, TOPIC) is not deny


@pytest.mark.parametrize("client", [f"{LINK_LOCAL}%3", LINK_LOCAL])
def test_scope_limits_what_is_allowed_and_never_what_is_denied(client: str) -> None:
    subject = Subject("User:alice", client)
    allowing = AclIndex([acl("t", READ, host="fe80::1%2")])
    assert allowing.decide(subject, READ, TOPIC, "t") is Outcome.DENIED
    denying = AclIndex([acl("t", ALL), acl("t", READ, host="fe80::1%2", deny=True)])
    assert denying.decide(subject, READ, TOPIC, "t") is Outcome.DENIED


@pytest.mark.parametrize(
    "host", ["localhost", "127.1", "127.0.0.2/32", "127.0.0.0/255.0.0.0", "::ffff:127.0.0.2"]
)
def test_entry_for_another_host_does_not_apply(host: str) -> None:
    index = AclIndex([acl("t", READ, host=host)])
    assert index.decide(Subject("User:alice", "127.0.0.1"), READ, TOPIC, "t") is Outcome.DENIED


@pytest.mark.parametrize("deny", [False, True])
def test_entry_is_removed_in_the_spelling_it_was_added_in(deny: bool) -> None:
    entry = acl("t", READ, host="fe80::1%2", deny=deny)
    index = AclIndex([entry])
    index.remove(entry)
    assert index.decide(ALICE, READ, TOPIC, "t") is Outcome.NO_ENTRY
