"""AlterConfigs and IncrementalAlterConfigs, rule by rule, and against a dictionary."""

import itertools
from dataclasses import replace

import pytest
from controller_images import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    after,
    broker,
    config,
    feature,
    image_of,
    topic,
)
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller import config_alterations
from ottla.controller.config_alterations import (
    Operation,
    decide_alter_configs,
    decide_incremental_alter_configs,
)
from ottla.controller.config_rules import ConfigContext, refuse_broker_keys
from ottla.controller.decision import Decision, Refusal
from ottla.metadata.configs import ConfigResource
from ottla.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from ottla.metadata.image import Image
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.metadata_topics import ClearElrRecord, ConfigRecord
from ottla.protocol.messages import alter_configs
from ottla.protocol.messages.alter_configs import AlterConfigsRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

STATIC = {
    "node.id": "3000",
    "process.roles": "controller",
    "controller.listener.names": "CONTROLLER",
}
CONTEXT = ConfigContext(3000, STATIC, frozenset({3000}))
IMAGE = image_of(topic("foo"), topic("bar"), broker(1), broker(2))
SET, DELETE, APPEND, SUBTRACT = (
    Operation.SET,
    Operation.DELETE,
    Operation.APPEND,
    Operation.SUBTRACT,
)

Op = tuple[str, int, str | None]


def resource(kind: int, name: str, *ops: Op) -> AlterConfigsResource:
    entries = [AlterableConfig(key, operation, value) for key, operation, value in ops]
    return AlterConfigsResource(kind, name, entries)


def alter(
    image: Image, *resources: AlterConfigsResource, validate_only: bool = False
) -> Decision[IncrementalAlterConfigsResponse]:
    request = IncrementalAlterConfigsRequest(list(resources), validate_only)
    return decide_incremental_alter_configs(image, request, CONTEXT)


def code(decision: Decision[IncrementalAlterConfigsResponse], at: int = 0) -> ErrorCode:
    return ErrorCode(decision.reply.responses[at].error_code)


def one(kind: int, name: str, *ops: Op, image: Image = IMAGE) -> ErrorCode:
    decision = alter(image, resource(kind, name, *ops))
    if code(decision):
        assert decision.records == []
    return code(decision)


def stored(image: Image, kind: int, name: str) -> dict[str, str]:
    return dict(image.configs.of(ConfigResource(kind, name)))


# -- operations ----------------------------------------------------------------------------------


def test_set_writes_the_value() -> None:
    decision = alter(IMAGE, resource(TOPIC, "foo", ("retention.ms", SET, "1000")))
    assert code(decision) is ErrorCode.NONE
    assert decision.reply.responses[0].error_message is None
    assert stored(after(IMAGE, decision), TOPIC, "foo") == {"retention.ms": "1000"}


def test_delete_writes_null() -> None:
    image = image_of(topic("foo"), config(TOPIC, "foo", "retention.ms", "1000"))
    decision = alter(image, resource(TOPIC, "foo", ("retention.ms", DELETE, None)))
    assert [record.message for record in decision.records] == [
        config(TOPIC, "foo", "retention.ms", None)
    ]


def test_append_starts_from_the_default_of_the_key() -> None:
    decision = alter(IMAGE, resource(TOPIC, "foo", ("cleanup.policy", APPEND, "compact")))
    assert stored(after(IMAGE, decision), TOPIC, "foo") == {"cleanup.policy": "delete,compact"}


def test_append_keeps_existing_items_once() -> None:
    image = image_of(topic("foo"), config(TOPIC, "foo", "cleanup.policy", "compact,delete"))
    decision = alter(image, resource(TOPIC, "foo", ("cleanup.policy", APPEND, "delete")))
    assert code(decision) is ErrorCode.NONE
    assert decision.records == []


def test_subtract_removes_items() -> None:
    image = image_of(topic("foo"), config(TOPIC, "foo", "cleanup.policy", "compact,delete"))
    decision = alter(image, resource(TOPIC, "foo", ("cleanup.policy", SUBTRACT, "delete")))
    assert stored(after(image, decision), TOPIC, "foo") == {"cleanup.policy": "compact"}


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_append_and_subtract_require_a_list(operation: int) -> None:
    assert one(TOPIC, "foo", ("retention.ms", operation, "1")) is ErrorCode.INVALID_CONFIG


def test_unknown_operation_is_rejected() -> None:
    assert one(TOPIC, "foo", ("retention.ms", 9, "1")) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("operation", [SET, APPEND, SUBTRACT])
def test_null_value_is_rejected(operation: int) -> None:
    assert one(TOPIC, "foo", ("cleanup.policy", operation, None)) is ErrorCode.INVALID_REQUEST


def test_unchanged_key_is_written_for_a_broker_only() -> None:
    image = image_of(
        topic("foo"),
        broker(1),
        config(TOPIC, "foo", "retention.ms", "5"),
        config(BROKER, "1", "log.retention.ms", "5"),
    )
    decision = alter(
        image,
        resource(TOPIC, "foo", ("retention.ms", SET, "5")),
        resource(BROKER, "1", ("log.retention.ms", SET, "5")),
    )
    assert [record.message for record in decision.records] == [
        config(BROKER, "1", "log.retention.ms", "5")
    ]


# -- requests ------------------------------------------------------------------------------------


def test_invalid_key_fails_only_its_resource() -> None:
    decision = alter(
        IMAGE,
        resource(TOPIC, "foo", ("retention.ms", SET, "7"), ("segment.bytes", SET, "-1")),
        resource(TOPIC, "bar", ("retention.ms", SET, "7")),
    )
    assert code(decision, 0) is ErrorCode.INVALID_CONFIG
    assert code(decision, 1) is ErrorCode.NONE
    new = after(IMAGE, decision)
    assert stored(new, TOPIC, "foo") == {}
    assert stored(new, TOPIC, "bar") == {"retention.ms": "7"}


def test_validate_only_writes_nothing() -> None:
    asked = resource(TOPIC, "foo", ("retention.ms", SET, "7"))
    decision = alter(IMAGE, asked, validate_only=True)
    assert code(decision) is ErrorCode.NONE
    assert decision.records == []
    bad = alter(IMAGE, resource(TOPIC, "foo", ("x", SET, "7")), validate_only=True)
    assert code(bad) is ErrorCode.INVALID_CONFIG


def test_repeated_resource_is_rejected_both_times() -> None:
    asked = resource(TOPIC, "foo", ("retention.ms", SET, "7"))
    decision = alter(IMAGE, asked, asked)
    assert [code(decision, at) for at in (0, 1)] == [ErrorCode.INVALID_REQUEST] * 2
    assert decision.records == []


def test_repeated_key_is_rejected() -> None:
    ops = (("retention.ms", SET, "7"), ("retention.ms", SET, "8"))
    assert one(TOPIC, "foo", *ops) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(0, ErrorCode.UNSUPPORTED_VERSION), (8, ErrorCode.INVALID_REQUEST)],
    ids=["unknown", "logger"],
)
def test_resource_types_without_records_are_rejected(kind: int, expected: ErrorCode) -> None:
    assert one(kind, "1", ("a", SET, "b")) is expected


def test_too_long_value_is_rejected() -> None:
    image = image_of(broker(1))
    assert one(BROKER, "1", ("my.key", SET, "x" * 32768), image=image) is ErrorCode.INVALID_CONFIG
    assert one(BROKER, "1", ("my.key", SET, "x" * 32767), image=image) is ErrorCode.NONE


def test_request_with_too_many_changes_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_alterations, "RECORDS_MAX", 1)
    decision = alter(
        IMAGE,
        resource(TOPIC, "foo", ("retention.ms", SET, "7")),
        resource(TOPIC, "bar", ("retention.ms", SET, "7")),
    )
    assert [code(decision, at) for at in (0, 1)] == [ErrorCode.POLICY_VIOLATION] * 2
    assert decision.records == []


# -- topics --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", ErrorCode.INVALID_REQUEST),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_topic_resource_names_are_validated(name: str, expected: ErrorCode) -> None:
    assert one(TOPIC, name, ("retention.ms", SET, "1")) is expected


def test_unknown_topic_key_is_rejected() -> None:
    assert one(TOPIC, "foo", ("no.such", SET, "1")) is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("name", "key", "message"),
    [
        ("foo", "no.such", "Unknown topic config name: no.such"),
        ("none", "retention.ms", "The topic 'none' does not exist."),
    ],
)
def test_refused_topic_change_has_the_message_of_kafka(name: str, key: str, message: str) -> None:
    decision = alter(IMAGE, resource(TOPIC, name, (key, SET, "1")))
    assert decision.reply.responses[0].error_message == message


@pytest.mark.parametrize(
    ("kind", "ops", "message"),
    [
        (
            TOPIC,
            [("compression.type", SET, "zip")],
            "Invalid value zip for configuration compression.type: String must be one of: "
            "uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        (
            TOPIC,
            [("compression.type", APPEND, "gzip")],
            "Can't APPEND to key compression.type because its type is not LIST.",
        ),
        (
            TOPIC,
            [("retention.bytes", SET, None)],
            "Null value not supported for : retention.bytes",
        ),
        (
            TOPIC,
            [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
            "Error due to duplicate config keys",
        ),
        (
            GROUP,
            [("consumer.session.timeout.ms", SET, "1")],
            "consumer.session.timeout.ms must be greater than or equal to "
            "group.consumer.min.session.timeout.ms",
        ),
    ],
)
def test_rejected_value_is_explained_in_kafkas_words(kind, ops, message) -> None:
    decision = alter(IMAGE, resource(kind, "foo", *ops))
    assert decision.reply.responses[0].error_message == message


def test_keys_are_validated_together() -> None:
    image = image_of(topic("foo"), config(TOPIC, "foo", "max.compaction.lag.ms", "10"))
    ops = ("min.compaction.lag.ms", SET, "11")
    assert one(TOPIC, "foo", ops, image=image) is ErrorCode.INVALID_CONFIG
    ops = ("min.compaction.lag.ms", SET, "10")
    assert one(TOPIC, "foo", ops, image=image) is ErrorCode.NONE


def test_keys_are_validated_with_cluster_defaults() -> None:
    image = image_of(topic("foo"), config(BROKER, "", "log.cleaner.max.compaction.lag.ms", "10"))
    ops = ("min.compaction.lag.ms", SET, "11")
    assert one(TOPIC, "foo", ops, image=image) is ErrorCode.INVALID_CONFIG


def test_remote_storage_requires_the_node_setting() -> None:
    ops = ("remote.storage.enable", SET, "true")
    assert one(TOPIC, "foo", ops) is ErrorCode.INVALID_CONFIG
    enabled = ConfigContext(3000, STATIC | {"remote.log.storage.system.enable": "true"})
    request = IncrementalAlterConfigsRequest([resource(TOPIC, "foo", ops)])
    assert not code(decide_incremental_alter_configs(IMAGE, request, enabled))


def test_disabling_remote_storage_requires_deletion() -> None:
    image = image_of(topic("foo"), config(TOPIC, "foo", "remote.storage.enable", "true"))
    off = ("remote.storage.enable", SET, "false")
    assert one(TOPIC, "foo", off, image=image) is ErrorCode.INVALID_CONFIG
    cleanly = ("remote.log.delete.on.disable", SET, "true")
    assert one(TOPIC, "foo", off, cleanly, image=image) is ErrorCode.NONE


def test_disabled_remote_copy_requires_equal_retention() -> None:
    enabled = ConfigContext(3000, STATIC | {"remote.log.storage.system.enable": "true"})

    def asked(local: str) -> ErrorCode:
        ops = [
            ("remote.storage.enable", SET, "true"),
            ("remote.log.copy.disable", SET, "true"),
            ("retention.ms", SET, "100"),
            ("local.retention.ms", SET, local),
        ]
        request = IncrementalAlterConfigsRequest([resource(TOPIC, "foo", *ops)])
        return code(decide_incremental_alter_configs(IMAGE, request, enabled))

    assert asked("99") is ErrorCode.INVALID_CONFIG
    assert asked("100") is asked("-2") is ErrorCode.NONE


# -- brokers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("x", ErrorCode.INVALID_REQUEST),
        ("-1", ErrorCode.INVALID_REQUEST),
        ("9" * 5000, ErrorCode.INVALID_REQUEST),
        ("7", ErrorCode.BROKER_ID_NOT_REGISTERED),
        ("1", ErrorCode.NONE),
        ("3000", ErrorCode.NONE),
        ("", ErrorCode.NONE),
    ],
)
def test_broker_resource_names_are_validated(name: str, expected: ErrorCode) -> None:
    assert one(BROKER, name, ("log.retention.ms", SET, "1")) is expected


@pytest.mark.parametrize(
    ("name", "key", "value", "expected"),
    [
        ("1", "node.id", "2", ErrorCode.INVALID_REQUEST),
        ("1", "log.retention.ms", "x", ErrorCode.INVALID_REQUEST),
        ("1", "my.own.key", "x", ErrorCode.NONE),
        ("1", "ssl.keystore.password", "x", ErrorCode.INVALID_REQUEST),
        ("1", "listener.name.external.ssl.keystore.password", "x", ErrorCode.NONE),
        ("", "listener.name.external.ssl.keystore.password", "x", ErrorCode.INVALID_REQUEST),
        ("", "listener.name.external.max.connections", "5", ErrorCode.NONE),
        ("", "advertised.listeners", "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_broker_keys_are_validated(name: str, key: str, value: str, expected: ErrorCode) -> None:
    assert one(BROKER, name, (key, SET, value)) is expected


def test_read_only_key_can_be_deleted() -> None:
    assert one(BROKER, "1", ("node.id", DELETE, None)) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("keys", "for_all", "message"),
    [
        (
            ["sasl.jaas.config", "listener.name.x.no.such.key"],
            True,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "Set(sasl.jaas.config, listener.name.x.no.such.key)",
        ),
        (
            ["sasl.login.class", "broker.id", "ssl.keystore.location"],
            False,
            "Cannot update these configs dynamically: Set(sasl.login.class, broker.id)",
        ),
        (
            ["ssl.keystore.location", "sasl.jaas.config"],
            False,
            "These security configs can be dynamically updated only per-listener using the "
            "listener prefix: HashSet(ssl.keystore.location)",
        ),
    ],
)
def test_refused_keys_of_a_broker_are_named_in_the_words_of_kafka(
    keys: list[str], for_all: bool, message: str
) -> None:
    refusal = refuse_broker_keys(dict.fromkeys(keys, "x"), for_all=for_all)
    assert refusal == Refusal(ErrorCode.INVALID_REQUEST, message)


def test_refused_keys_in_a_message_are_bounded() -> None:
    keys = [f"listener.name.x.{number}{'y' * 1000}" for number in range(1000)]
    refusal = refuse_broker_keys(dict.fromkeys(keys, "x"), for_all=True)
    assert refusal is not None and refusal.message is not None and len(refusal.message) < 10_000


@pytest.mark.parametrize("key", ["max.connections", "listener.name.x.max.connections", "no.such"])
def test_key_of_all_brokers_is_accepted(key: str) -> None:
    assert refuse_broker_keys({key: "5"}, for_all=True) is None


def test_error_messages_contain_no_secret() -> None:
    keys = ["ssl.keystore.password", "delegation.token.secret.key", "my.own.key"]
    keys.append("listener.name.x.ssl.keystore.password")
    for key, name, times in itertools.product(keys, ("", "1", "77"), (1, 9000)):
        decision = alter(IMAGE, resource(BROKER, name, (key, SET, "hunter2" * times)))
        assert "hunter2" not in repr(decision.reply)
        if times > 1:
            assert code(decision)
    assert "hunter2" not in repr(ConfigContext(1, {"a": "hunter2"}))


# -- groups and client metrics -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "key", "value", "expected"),
    [
        ("", "consumer.session.timeout.ms", "50000", ErrorCode.INVALID_REQUEST),
        ("g", "consumer.session.timeout.ms", "50000", ErrorCode.NONE),
        ("g", "consumer.session.timeout.ms", "1", ErrorCode.INVALID_CONFIG),
        ("g", "nothing", "1", ErrorCode.INVALID_CONFIG),
    ],
)
def test_group_configs_are_validated(name: str, key: str, value: str, expected: ErrorCode) -> None:
    assert one(GROUP, name, (key, SET, value)) is expected


@pytest.mark.parametrize(
    ("name", "key", "value", "expected"),
    [
        ("", "interval.ms", "1000", ErrorCode.INVALID_REQUEST),
        ("s", "interval.ms", "1000", ErrorCode.NONE),
        ("s", "interval.ms", "99", ErrorCode.INVALID_REQUEST),
        ("s", "interval.ms", "x", ErrorCode.INVALID_CONFIG),
        ("s", "match", "client_id=(", ErrorCode.INVALID_CONFIG),
        ("s", "match", "client_id=a=b", ErrorCode.INVALID_CONFIG),
        ("s", "match", "client_id=", ErrorCode.INVALID_CONFIG),
        ("s", "match", "client_id=a,client_id=b", ErrorCode.NONE),
        ("s", "metrics", "a,,b", ErrorCode.INVALID_CONFIG),
        ("s", "metrics", "", ErrorCode.NONE),
        ("s", "nothing", "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_client_metrics_configs_are_validated(
    name: str, key: str, value: str, expected: ErrorCode
) -> None:
    assert one(CLIENT_METRICS, name, (key, SET, value)) is expected


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
@pytest.mark.parametrize("key", ["metrics", "match", "interval.ms"])
@pytest.mark.parametrize("before", [None, "", "*"])
def test_client_metrics_have_no_list_operations(
    operation: int, key: str, before: str | None
) -> None:
    stored_before = [] if before is None else [config(CLIENT_METRICS, "s", key, before)]
    image = image_of(*stored_before)
    decision = alter(image, resource(CLIENT_METRICS, "s", (key, operation, "x")))
    assert code(decision) is ErrorCode.INVALID_CONFIG


# -- eligible leader replicas --------------------------------------------------------------------

ELR = feature(ELIGIBLE_LEADER_REPLICAS_VERSION, 1)
MIN_ISR = "min.insync.replicas"


def test_min_insync_replicas_of_one_broker_cannot_change_with_elr() -> None:
    image = image_of(broker(1), ELR)
    for op in ((MIN_ISR, SET, "2"), (MIN_ISR, DELETE, None)):
        assert one(BROKER, "1", op, image=image) is ErrorCode.INVALID_CONFIG
        assert one(BROKER, "1", op) is ErrorCode.NONE


def test_min_insync_replicas_of_the_cluster_cannot_be_removed_with_elr() -> None:
    image = image_of(ELR, config(BROKER, "", MIN_ISR, "1"))
    assert one(BROKER, "", (MIN_ISR, DELETE, None), image=image) is ErrorCode.INVALID_CONFIG
    assert one(BROKER, "", (MIN_ISR, SET, "2"), image=image) is ErrorCode.NONE
    request = AlterConfigsRequest([alter_configs.AlterConfigsResource(BROKER, "", [])])
    decision = decide_alter_configs(image, request, CONTEXT)
    assert decision.reply.responses[0].error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(("kind", "name", "cleared"), [(TOPIC, "foo", "foo"), (BROKER, "", "")])
def test_changed_min_insync_replicas_clears_the_elr(kind: int, name: str, cleared: str) -> None:
    asked = resource(kind, name, (MIN_ISR, SET, "2"))
    decision = alter(image_of(topic("foo"), ELR), asked)
    assert [record.message for record in decision.records] == [
        ConfigRecord(kind, name, MIN_ISR, "2"),
        ClearElrRecord(cleared),
    ]
    without = alter(IMAGE, asked)
    assert [type(record.message) for record in without.records] == [ConfigRecord]


# -- AlterConfigs --------------------------------------------------------------------------------


def replace_all(image: Image, name: str, values: dict[str, str | None]) -> tuple[ErrorCode, Image]:
    entries = [alter_configs.AlterableConfig(key, value) for key, value in values.items()]
    request = AlterConfigsRequest([alter_configs.AlterConfigsResource(TOPIC, name, entries)])
    decision = decide_alter_configs(image, request, CONTEXT)
    return ErrorCode(decision.reply.responses[0].error_code), after(image, decision)


def test_alter_configs_removes_keys_that_are_not_in_the_request() -> None:
    image = image_of(
        topic("foo"),
        config(TOPIC, "foo", "retention.ms", "5"),
        config(TOPIC, "foo", "segment.ms", "6"),
    )
    found, new = replace_all(image, "foo", {"segment.ms": "7"})
    assert found is ErrorCode.NONE
    assert stored(new, TOPIC, "foo") == {"segment.ms": "7"}


def test_alter_configs_rejects_null_values() -> None:
    found, new = replace_all(IMAGE, "foo", {"segment.ms": None})
    assert found is ErrorCode.INVALID_REQUEST
    assert new == IMAGE


# -- all operations against a dictionary ---------------------------------------------------------

ITEMS = ("compact", "delete")
NUMBERS = st.sampled_from(["1", "22", "333"])
OPS = st.one_of(
    st.tuples(st.sampled_from(["retention.ms", "segment.ms"]), st.just(SET), NUMBERS),
    st.tuples(st.sampled_from(["retention.ms", "segment.ms"]), st.just(DELETE), st.none()),
    st.tuples(
        st.just("cleanup.policy"),
        st.sampled_from([SET, APPEND, SUBTRACT]),
        st.sampled_from([*ITEMS, "compact,delete", "delete,compact"]),
    ),
    st.tuples(st.just("cleanup.policy"), st.just(DELETE), st.none()),
)
STEP = st.tuples(
    st.sampled_from(["foo", "bar"]), st.lists(OPS, max_size=3, unique_by=lambda o: o[0])
)


def apply_naively(values: dict[str, str], ops: list[Op]) -> dict[str, str]:
    new = dict(values)
    for key, operation, value in ops:
        items = new.get(key, "delete").split(",") if key == "cleanup.policy" else []
        items = [item for item in items if item]
        if operation == DELETE:
            new.pop(key, None)
        elif operation == SET:
            new[key] = str(value)
        elif operation == APPEND:
            new[key] = ",".join(items + [i for i in str(value).split(",") if i not in items])
        else:
            new[key] = ",".join(i for i in items if i not in str(value).split(","))
    return new


@given(st.lists(STEP, max_size=8))
def test_incremental_changes_match_a_dictionary_model(steps: list[tuple[str, list[Op]]]) -> None:
    image = IMAGE
    naive: dict[str, dict[str, str]] = {"foo": {}, "bar": {}}
    for name, ops in steps:
        decision = alter(image, resource(TOPIC, name, *ops))
        assert code(decision) is ErrorCode.NONE, decision.reply
        image = after(image, decision)
        naive[name] = apply_naively(naive[name], ops)
        assert {n: stored(image, TOPIC, n) for n in naive} == naive


# -- cordoned.log.dirs (KIP-1066) ----------------------------------------------------------------


CORDONED = "cordoned.log.dirs"


def test_cordons_need_their_metadata_version() -> None:
    asked = (CORDONED, SET, "/d1")
    assert one(BROKER, "1", asked) is ErrorCode.INVALID_CONFIG
    image = image_of(broker(1), version=MetadataVersion.IBP_4_3_IV0)
    assert one(BROKER, "1", asked, image=image) is ErrorCode.NONE


def test_cordons_are_set_for_one_broker_only() -> None:
    image = image_of(broker(1), version=MetadataVersion.IBP_4_3_IV0)
    assert one(BROKER, "", (CORDONED, SET, "/d1"), image=image) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/d1", ErrorCode.NONE),
        ("", ErrorCode.NONE),
        ("/d1,/d3", ErrorCode.INVALID_CONFIG),
        ("*", ErrorCode.INVALID_CONFIG),
    ],
)
def test_controller_asked_directly_only_lifts_cordons(value: str, expected: ErrorCode) -> None:
    old = config(BROKER, "1", CORDONED, "/d1, /d2")
    image = image_of(broker(1), old, version=MetadataVersion.IBP_4_3_IV0)
    request = IncrementalAlterConfigsRequest([resource(BROKER, "1", (CORDONED, SET, value))])
    direct = replace(CONTEXT, is_forwarded=False)
    assert code(decide_incremental_alter_configs(image, request, direct)) is expected
