"""AlterClientQuotas and DescribeClientQuotas, rule by rule, and against dictionaries."""

import math

import pytest
from controller_images import after, image_of
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller import client_quotas
from ottla.controller.client_quotas import decide_alter_client_quotas, describe_client_quotas
from ottla.controller.decision import Decision
from ottla.metadata.configs import quota_entity
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from ottla.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)

Entity = dict[str, str | None]
IMAGE = image_of()
RATE = "producer_byte_rate"


def entry(entity: Entity, limits: dict[str, float | None]) -> RequestEntryData:
    return RequestEntryData(
        entity=[RequestEntityData(kind, name) for kind, name in entity.items()],
        ops=[OpData(key, limit or 0.0, remove=limit is None) for key, limit in limits.items()],
    )


def alter(image: Image, *entries: RequestEntryData) -> Decision[AlterClientQuotasResponse]:
    return decide_alter_client_quotas(image, AlterClientQuotasRequest(list(entries)))


def one(entity: Entity, key: str = RATE, limit: float | None = 1.0) -> ErrorCode:
    decision = alter(IMAGE, entry(entity, {key: limit}))
    found = ErrorCode(decision.reply.entries[0].error_code)
    assert bool(decision.records) == (found is ErrorCode.NONE)
    return found


# -- entities ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entity",
    [
        {"user": "alice"},
        {"user": None},
        {"client-id": "c"},
        {"client-id": None, "user": "alice"},
    ],
)
def test_user_and_client_quotas_are_set_and_removed(entity: Entity) -> None:
    assert one(entity) is ErrorCode.NONE


@pytest.mark.parametrize("address", ["10.0.0.1", "::1", None])
def test_ip_quotas_are_set(address: str | None) -> None:
    assert one({"ip": address}, "connection_creation_rate") is ErrorCode.NONE


@pytest.mark.parametrize(
    "entity",
    [
        {},
        {"user": ""},
        {"group": "g"},
        {"ip": "10.0.0.1", "user": "alice"},
        {"ip": "not an address"},
    ],
    ids=str,
)
def test_invalid_entities_are_rejected(entity: Entity) -> None:
    assert one(entity) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("key", [RATE, "connection_creation_rate"])
@pytest.mark.parametrize("other", ["user", "client-id"])
def test_ip_cannot_be_combined_with_other_entities(other: str, key: str) -> None:
    assert one({"ip": "10.0.0.1", other: "a"}, key) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("entity", "words"),
    [
        ({"ip": "10.0.0.1", "user": "a"}, "Invalid quota entity combination"),
        ({"ip": "not an address"}, "not an address is not a valid IP"),
    ],
)
def test_rejected_ip_entities_have_the_words_that_kafkas_tests_look_for(
    entity: Entity, words: str
) -> None:
    [result] = alter(IMAGE, entry(entity, {"connection_creation_rate": 1.0})).reply.entries
    assert words in (result.error_message or "")


def test_repeated_entity_type_is_rejected() -> None:
    parts = [RequestEntityData("user", "a"), RequestEntityData("user", "b")]
    decision = alter(IMAGE, RequestEntryData(entity=parts, ops=[OpData(RATE, 1.0)]))
    assert decision.reply.entries[0].error_code == ErrorCode.INVALID_REQUEST


def test_repeated_entity_is_rejected() -> None:
    first = entry({"user": "a", "client-id": "c"}, {RATE: 1.0})
    again = entry({"client-id": "c", "user": "a"}, {RATE: 2.0})
    decision = alter(IMAGE, first, again)
    # One result for the entity; as in Kafka, the first change is made all the same.
    assert [e.error_code for e in decision.reply.entries] == [ErrorCode.INVALID_REQUEST]
    assert len(decision.records) == 1


# -- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "limit"),
    [
        ("connection_creation_rate", 1.0),
        ("nothing", 1.0),
        (RATE, 0.0),
        (RATE, -1.0),
        (RATE, math.nan),
        (RATE, 1.5),
        (RATE, 1e19),
        (RATE, math.inf),
        ("request_percentage", 0.0),
    ],
)
def test_invalid_limits_are_rejected(key: str, limit: float) -> None:
    assert one({"user": "a"}, key, limit) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("key", "limit"),
    [
        (RATE, 1.0000001),
        (RATE, 2.0**62),
        ("consumer_byte_rate", 5.0),
        ("request_percentage", 0.5),
        ("controller_mutation_rate", 0.5),
    ],
)
def test_valid_limits_are_accepted(key: str, limit: float) -> None:
    assert one({"user": "a"}, key, limit) is ErrorCode.NONE


def test_connection_rate_must_be_an_int() -> None:
    key = "connection_creation_rate"
    assert one({"ip": "::1"}, key, 2.0**31 - 1) is ErrorCode.NONE
    assert one({"ip": "::1"}, key, 2.0**31) is ErrorCode.INVALID_REQUEST


def test_repeated_key_is_rejected() -> None:
    asked = RequestEntryData([RequestEntityData("user", "a")], [OpData(RATE, 1.0)] * 2)
    assert alter(IMAGE, asked).reply.entries[0].error_code == ErrorCode.INVALID_REQUEST


def test_invalid_limit_fails_only_its_entity() -> None:
    decision = alter(
        IMAGE, entry({"user": "a"}, {RATE: 1.0, "x": 1.0}), entry({"user": "b"}, {RATE: 1.0})
    )
    new = after(IMAGE, decision).client_quotas
    assert list(new.by_entity) == [quota_entity([("user", "b")])]


def test_unchanged_limit_is_not_written() -> None:
    asked = entry({"user": "a"}, {RATE: 1.0})
    image = after(IMAGE, alter(IMAGE, asked))
    assert alter(image, asked).records == []
    assert alter(IMAGE, entry({"user": "a"}, {RATE: None})).records == []


def test_validate_only_writes_nothing() -> None:
    request = AlterClientQuotasRequest([entry({"user": "a"}, {RATE: 1.0})], validate_only=True)
    decision = decide_alter_client_quotas(IMAGE, request)
    assert decision.reply.entries[0].error_code == 0
    assert decision.records == []


def test_request_with_too_many_changes_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "RECORDS_MAX", 1)
    decision = alter(IMAGE, *(entry({"user": u}, {RATE: 1.0}) for u in "ab"))
    assert [e.error_code for e in decision.reply.entries] == [ErrorCode.POLICY_VIOLATION] * 2
    assert decision.records == []


# -- describe ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("components", "expected"),
    [
        ([ComponentData("", 0, "a")], ErrorCode.INVALID_REQUEST),
        ([ComponentData("user", 0, "a")] * 2, ErrorCode.INVALID_REQUEST),
        ([ComponentData("group", 0, "a")], ErrorCode.UNSUPPORTED_VERSION),
        ([ComponentData("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([ComponentData("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([ComponentData("user", 1, "a")], ErrorCode.INVALID_REQUEST),
        ([ComponentData("user", 2, "a")], ErrorCode.INVALID_REQUEST),
        (
            [ComponentData("user", 2, None), ComponentData("ip", 2, None)],
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_invalid_filters_are_rejected(components: list[ComponentData], expected: ErrorCode) -> None:
    reply = describe_client_quotas(IMAGE, DescribeClientQuotasRequest(components))
    assert reply.error_code == expected
    assert reply.entries is None


def test_filter_of_ip_and_user_has_the_words_that_kafkas_tests_look_for() -> None:
    components = [ComponentData("user", 2, None), ComponentData("ip", 2, None)]
    reply = describe_client_quotas(IMAGE, DescribeClientQuotasRequest(components))
    assert "Invalid entity filter component combination" in (reply.error_message or "")


NAMES = st.sampled_from([None, "a", "b"])
ENTITIES = st.one_of(
    st.fixed_dictionaries({"user": NAMES}),
    st.fixed_dictionaries({"client-id": NAMES}),
    st.fixed_dictionaries({"client-id": NAMES, "user": NAMES}),
    st.fixed_dictionaries({"ip": st.sampled_from([None, "10.0.0.1"])}),
)
STEPS = st.lists(st.tuples(ENTITIES, st.sampled_from([None, 1.0, 2.0])), max_size=12)
COMPONENTS = st.lists(
    st.one_of(
        st.builds(ComponentData, st.sampled_from(["user", "client-id"]), st.just(0), st.just("a")),
        st.builds(
            ComponentData,
            st.sampled_from(["user", "client-id"]),
            st.sampled_from([1, 2]),
            st.none(),
        ),
    ),
    max_size=2,
    unique_by=lambda component: component.entity_type,
)


def is_meant(entity: Entity, components: list[ComponentData], strict: bool) -> bool:
    for component in components:
        if component.entity_type not in entity:
            return False
        name = entity[component.entity_type]
        if component.match_type == 0 and name != component.match:
            return False
        if component.match_type == 1 and name is not None:
            return False
    kinds = {component.entity_type for component in components}
    return not strict or set(entity) == kinds


@given(STEPS, COMPONENTS, st.booleans())
def test_quotas_match_a_dictionary_model(
    steps: list[tuple[Entity, float | None]], components: list[ComponentData], strict: bool
) -> None:
    image = IMAGE
    naive: dict[frozenset[tuple[str, str | None]], float] = {}
    for entity, limit in steps:
        key = "connection_creation_rate" if "ip" in entity else RATE
        image = after(image, alter(image, entry(entity, {key: limit})))
        if limit is None:
            naive.pop(frozenset(entity.items()), None)
        else:
            naive[frozenset(entity.items())] = limit
    reply = describe_client_quotas(image, DescribeClientQuotasRequest(components, strict))
    found = {
        frozenset((p.entity_type, p.entity_name) for p in e.entity): e.values[0].value
        for e in reply.entries or ()
    }
    assert found == {
        e: limit for e, limit in naive.items() if is_meant(dict(e), components, strict)
    }
    assert len(found) == len(reply.entries or ())
