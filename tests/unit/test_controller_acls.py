"""CreateAcls, DeleteAcls and DescribeAcls, rule by rule, and filters against a naive match."""

import itertools

import pytest
from controller_images import CountingRandom, after, image_of
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller import acls
from ottla.controller.acls import (
    AclFilter,
    decide_create_acls,
    decide_delete_acls,
    describe_acls,
)
from ottla.controller.decision import Decision
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.security.acl import Acl

IMAGE = image_of()
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, CLUSTER, READ, ALLOW, DENY = 2, 4, 3, 3, 2
OPEN = AclFilter(ANY, None, ANY, None, None, ANY, ANY)


def creation(**changes: object) -> AclCreation:
    fields = {
        "resource_type": TOPIC,
        "resource_name": "foo",
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return AclCreation(**(fields | changes))  # type: ignore[arg-type]


def create(image: Image, *creations: AclCreation) -> Decision[CreateAclsResponse]:
    rng = CountingRandom()
    rng.drawn = len(image.acls)
    return decide_create_acls(image, CreateAclsRequest(list(creations)), rng)


def image_with(*creations: AclCreation) -> Image:
    decision = create(IMAGE, *creations)
    assert not any(result.error_code for result in decision.reply.results), decision.reply
    return after(IMAGE, decision)


def delete_filter(wanted: AclFilter) -> DeleteAclsFilter:
    return DeleteAclsFilter(*wanted)


def names(image: Image) -> list[str]:
    return sorted(acl.resource_name for acl in image.acls.values())


# -- create --------------------------------------------------------------------------------------


def test_create_acls_writes_an_entry() -> None:
    image = image_with(creation())
    assert list(image.acls.values()) == [Acl(TOPIC, "foo", LITERAL, "User:alice", "*", READ, ALLOW)]


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_type": 0},
        {"resource_type": 1},
        {"resource_type": 8},
        {"resource_pattern_type": ANY},
        {"resource_pattern_type": MATCH},
        {"resource_pattern_type": 5},
        {"operation": 0},
        {"operation": 1},
        {"operation": 16},
        {"permission_type": 0},
        {"permission_type": 1},
        {"permission_type": 4},
        {"resource_name": ""},
        {"resource_type": CLUSTER},
        {"principal": "alice"},
    ],
    ids=str,
)
def test_invalid_acls_are_rejected(changes: dict[str, object]) -> None:
    decision = create(IMAGE, creation(**changes), creation(resource_name="good"))
    assert [r.error_code for r in decision.reply.results] == [ErrorCode.INVALID_REQUEST, 0]
    assert names(after(IMAGE, decision)) == ["good"]


def test_cluster_resource_has_one_name() -> None:
    assert len(image_with(creation(resource_type=CLUSTER, resource_name="kafka-cluster")).acls) == 1


def test_existing_acl_succeeds_without_a_record() -> None:
    image = image_with(creation())
    decision = create(image, creation(), creation(host="1.2.3.4"), creation(host="1.2.3.4"))
    assert [result.error_code for result in decision.reply.results] == [0, 0, 0]
    assert len(decision.records) == 1


def test_acl_id_in_use_is_not_assigned_again() -> None:
    image = image_with(creation())
    decision = decide_create_acls(image, CreateAclsRequest([creation(host="b")]), CountingRandom())
    assert len(after(image, decision).acls) == 2


def test_create_acls_rejects_too_many_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls, "RECORDS_MAX", 1)
    decision = create(IMAGE, creation(host="a"), creation(host="b"))
    assert [r.error_code for r in decision.reply.results] == [ErrorCode.POLICY_VIOLATION] * 2
    assert decision.records == []


@pytest.mark.parametrize(
    ("host", "stored"),
    [
        ("::1", "0:0:0:0:0:0:0:1"),
        ("0:0:0:0:0:0:0:1", "0:0:0:0:0:0:0:1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%2", "fe80:0:0:0:0:0:0:1%2"),
        ("somewhere", "somewhere"),
    ],
)
def test_host_is_stored_and_filtered_as_kafka_prints_it(host: str, stored: str) -> None:
    image = image_with(creation(host=host))
    assert [acl.host for acl in image.acls.values()] == [stored]
    assert not create(image, creation(host=stored)).records, "both spellings are one entry"
    for spelling in (host, stored):
        request = DescribeAclsRequest(ANY, None, ANY, None, spelling, ANY, ANY)
        (resource,) = describe_acls(image, request).resources
        assert [entry.host for entry in resource.acls] == [stored]
        deletion = DeleteAclsRequest([delete_filter(OPEN._replace(host=spelling))])
        assert len(decide_delete_acls(image, deletion).records) == 1


# -- delete --------------------------------------------------------------------------------------


def test_entry_matched_by_two_filters_is_removed_once_and_returned_twice() -> None:
    image = image_with(creation(), creation(resource_name="bar"))
    foo = OPEN._replace(resource_name="foo")
    request = DeleteAclsRequest([delete_filter(foo), delete_filter(foo)])
    decision = decide_delete_acls(image, request)
    assert [len(result.matching_acls) for result in decision.reply.filter_results] == [1, 1]
    assert names(after(image, decision)) == ["bar"]


@pytest.mark.parametrize("field", ["resource_type", "pattern_type", "operation", "permission_type"])
@pytest.mark.parametrize("number", [0, 99])
def test_invalid_filters_are_rejected(field: str, number: int) -> None:
    image = image_with(creation())
    bad = OPEN._replace(**{field: number})  # type: ignore[arg-type]
    decision = decide_delete_acls(image, DeleteAclsRequest([delete_filter(bad)]))
    assert decision.reply.filter_results[0].error_code == ErrorCode.INVALID_REQUEST
    assert decision.records == []
    assert describe_acls(image, DescribeAclsRequest(*bad)).error_code == ErrorCode.INVALID_REQUEST


def test_delete_acls_rejects_too_many_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    image = image_with(creation(), creation(resource_name="bar"))
    monkeypatch.setattr(acls, "RECORDS_MAX", 1)
    decision = decide_delete_acls(image, DeleteAclsRequest([delete_filter(OPEN)]))
    assert decision.reply.filter_results[0].error_code == ErrorCode.INVALID_REQUEST
    assert decision.reply.filter_results[0].matching_acls == []
    assert decision.records == []


def test_delete_acls_rejects_replies_with_very_many_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same entry counts for each filter that matches it: the reply repeats it."""
    image = image_with(creation(), creation(resource_name="bar"))
    monkeypatch.setattr(acls, "MATCHES_MAX", 4)
    for filters, code in ((2, ErrorCode.NONE), (3, ErrorCode.INVALID_REQUEST)):
        decision = decide_delete_acls(image, DeleteAclsRequest([delete_filter(OPEN)] * filters))
        assert [row.error_code for row in decision.reply.filter_results] == [code] * filters
        assert len(decision.records) == (2 if code is ErrorCode.NONE else 0)


@pytest.mark.parametrize("field", ["resource_name", "principal"])
def test_many_filters_do_not_compare_every_entry_with_each(
    monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    count = 50
    image = image_with(*(creation(**{field: f"User:{number}"}) for number in range(count)))
    compared = 0
    matches = AclFilter.matches

    def counted(acl_filter: AclFilter, acl: Acl) -> bool:
        nonlocal compared
        compared += 1
        return matches(acl_filter, acl)

    monkeypatch.setattr(AclFilter, "matches", counted)
    filters = [OPEN._replace(**{field: f"User:{number}"}) for number in range(count)]  # type: ignore[arg-type]
    request = DeleteAclsRequest([*map(delete_filter, filters)] * 2)
    decision = decide_delete_acls(image, request)
    assert [len(row.matching_acls) for row in decision.reply.filter_results] == [1] * 2 * count
    assert len(decision.records) == count
    assert compared == count + (count - 1)  # all for the first filter, then one for each


# -- filters -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("foobar", MATCH, ["*", "foo/p", "foobar"]),
        ("foo", MATCH, ["*", "foo", "foo/p"]),
        ("fo", MATCH, ["*"]),
        ("foo", ANY, ["foo", "foo/p"]),
        ("foo", LITERAL, ["foo"]),
        ("foo", PREFIXED, ["foo/p"]),
        ("*", LITERAL, ["*"]),
        (None, PREFIXED, ["foo/p"]),
        (None, MATCH, ["*", "foo", "foo/p", "foobar"]),
    ],
)
def test_filters_match_by_pattern_type(name: str | None, pattern: int, expected: list[str]) -> None:
    image = image_with(
        creation(),
        creation(resource_name="foobar"),
        creation(resource_name="*"),
        creation(resource_pattern_type=PREFIXED),
    )
    wanted = OPEN._replace(resource_name=name, pattern_type=pattern)
    reply = describe_acls(image, DescribeAclsRequest(*wanted))
    found = [r.resource_name + "/p" * (r.pattern_type == PREFIXED) for r in reply.resources]
    assert sorted(found) == expected


def test_describe_acls_groups_entries_by_resource() -> None:
    image = image_with(creation(), creation(permission_type=DENY), creation(resource_name="bar"))
    reply = describe_acls(image, DescribeAclsRequest(*OPEN))
    assert [(r.resource_name, len(r.acls)) for r in reply.resources] == [("bar", 1), ("foo", 2)]


RESOURCE_NAMES = ["*", "f", "foo", "foobar"]
PRINCIPALS = ["User:a", "User:b"]
CREATIONS = st.builds(
    AclCreation,
    st.sampled_from([2, 3]),
    st.sampled_from(RESOURCE_NAMES),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(["*", "h"]),
    st.sampled_from([2, 3]),
    st.sampled_from([ALLOW, DENY]),
)
FILTERS = st.builds(
    AclFilter,
    st.sampled_from([ANY, 2, 3]),
    st.sampled_from([None, *RESOURCE_NAMES]),
    st.sampled_from([ANY, MATCH, LITERAL, PREFIXED]),
    st.sampled_from([None, *PRINCIPALS]),
    st.sampled_from([None, "*", "h"]),
    st.sampled_from([ANY, 2, 3]),
    st.sampled_from([ANY, ALLOW, DENY]),
)


def is_meant(wanted: AclFilter, acl: Acl) -> bool:
    """Match by listing every entry that the filter could select."""
    if wanted.resource_name is None:
        patterns = set(itertools.product([LITERAL, PREFIXED], RESOURCE_NAMES))
    else:
        patterns = {(LITERAL, wanted.resource_name), (PREFIXED, wanted.resource_name)}
        if wanted.pattern_type == MATCH:
            patterns.add((LITERAL, "*"))
            for length in range(len(wanted.resource_name) + 1):
                patterns.add((PREFIXED, wanted.resource_name[:length]))
    if wanted.pattern_type in (LITERAL, PREFIXED):
        patterns = {p for p in patterns if p[0] == wanted.pattern_type}
    return (
        (acl.pattern_type, acl.resource_name) in patterns
        and (wanted.resource_type == ANY or wanted.resource_type == acl.resource_type)
        and (wanted.principal is None or wanted.principal == acl.principal)
        and (wanted.host is None or wanted.host == acl.host)
        and (wanted.operation == ANY or wanted.operation == acl.operation)
        and (wanted.permission_type == ANY or wanted.permission_type == acl.permission_type)
    )


@given(st.lists(CREATIONS, max_size=12), st.lists(FILTERS, min_size=1, max_size=3))
def test_delete_acls_keeps_entries_that_no_filter_matches(
    creations: list[AclCreation], filters: list[AclFilter]
) -> None:
    image = image_with(*creations)
    before = set(image.acls.values())
    decision = decide_delete_acls(image, DeleteAclsRequest([delete_filter(f) for f in filters]))
    left = set(after(image, decision).acls.values())
    assert left == {acl for acl in before if not any(is_meant(f, acl) for f in filters)}
    reply = describe_acls(image, DescribeAclsRequest(*filters[0]))
    described = sum(len(resource.acls) for resource in reply.resources)
    assert described == sum(is_meant(filters[0], acl) for acl in before)
