"""Every dynamic broker key, altered on a running node: applied, without effect, or refused."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from one_node import OneNode, format_one, settings

from ottla.client.connection import Connection
from ottla.config.dynamic import THREAD_POOLS, WITHOUT_EFFECT
from ottla.config.key_definition import Scope, Update
from ottla.config.key_table import KEYS
from ottla.config.loading import Loaded
from ottla.config.values import to_text
from ottla.node.handle import Node
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.runtime.network import TcpNetwork

BROKER = 4
SET, DELETE = 0, 1
DYNAMIC_BROKER, DYNAMIC_CLUSTER = 2, 3

Observe = Callable[[Node], object]


def of_topic(field: str) -> Observe:
    """A setting that a partition takes from its broker."""
    return lambda node: getattr(node.partitions.get("t", 0).config, field)  # type: ignore[union-attr]


def of_log(field: str) -> Observe:
    """A setting that a log takes from its broker."""
    return lambda node: getattr(node.partitions.get("t", 0).log.config, field)  # type: ignore[union-attr]


def of_cleaner(key: str) -> Observe:
    return lambda node: node._parts.broker.replica_manager.cleaning.describe()[key]  # type: ignore[union-attr]


def of_limits(field: str) -> Observe:
    return lambda node: getattr(node._parts.broker.listener._shared.admission.limits, field)  # type: ignore[union-attr]


def of_throttle(which: str) -> Observe:
    return lambda node: getattr(node._parts.broker.replica_manager.host.throttles, which).rate  # type: ignore[union-attr]


def of_tier(observe: Callable[[Any], object]) -> Observe:
    return lambda node: observe(node._parts.broker.replica_manager.tiering)  # type: ignore[union-attr]


def of_dead_letters(key: str) -> Observe:
    def observe(node: Node) -> object:
        assert node.coordinators is not None
        shares = node.coordinators.shares.handlers.sources.partitions
        return shares._parts.dead_letters._setting(node.image, key)  # type: ignore[attr-defined]

    return observe


def _is_verified(node: Node) -> bool:
    assert node.coordinators is not None
    return node.coordinators.transactions.verification.settings.is_enabled()


def _fetchers(node: Node) -> int:
    assert node._parts.broker.replica_manager is not None
    return node._parts.broker.replica_manager.fetchers.fetchers_per_leader


def _cordons(node: Node) -> list[bool]:
    return [each.is_cordoned for each in node._context.log_directories]


@dataclass(frozen=True)
class Applied:
    """A key, a value other than its default, and where the running node shows it."""

    text: str
    observe: Observe
    expected: object


APPLIED: dict[str, Applied] = {
    "compression.gzip.level": Applied("4", of_topic("compression_gzip_level"), 4),
    "compression.lz4.level": Applied("5", of_topic("compression_lz4_level"), 5),
    "compression.zstd.level": Applied("6", of_topic("compression_zstd_level"), 6),
    "compression.type": Applied("lz4", of_topic("compression_type"), "lz4"),
    "errors.deadletterqueue.auto.create.topics.enable": Applied(
        "true", of_dead_letters("errors.deadletterqueue.auto.create.topics.enable"), "true"
    ),
    "errors.deadletterqueue.topic.name.prefix": Applied(
        "dead.", of_dead_letters("errors.deadletterqueue.topic.name.prefix"), "dead."
    ),
    "log.cleaner.backoff.ms": Applied("1234", of_cleaner("log.cleaner.backoff.ms"), 1234),
    "log.cleaner.dedupe.buffer.size": Applied(
        "3000000", of_cleaner("log.cleaner.dedupe.buffer.size"), 3_000_000
    ),
    "log.cleaner.io.buffer.load.factor": Applied(
        "0.5", of_cleaner("log.cleaner.io.buffer.load.factor"), 0.5
    ),
    "log.cleaner.io.max.bytes.per.second": Applied(
        "1000000", of_cleaner("log.cleaner.io.max.bytes.per.second"), 1_000_000
    ),
    "log.cleaner.delete.retention.ms": Applied("9", of_log("delete_retention_ms"), 9),
    "log.cleaner.max.compaction.lag.ms": Applied("99", of_log("max_compaction_lag_ms"), 99),
    "log.cleaner.min.compaction.lag.ms": Applied("7", of_log("min_compaction_lag_ms"), 7),
    "log.cleaner.min.cleanable.ratio": Applied("0.25", of_log("min_cleanable_dirty_ratio"), 0.25),
    "log.cleanup.policy": Applied("compact", of_log("is_compacted"), True),
    "log.flush.interval.messages": Applied("12", of_topic("flush_messages"), 12),
    "log.flush.interval.ms": Applied("13000", of_topic("flush_ms"), 13000),
    "log.index.interval.bytes": Applied("14", of_log("index_interval_bytes"), 14),
    "log.index.size.max.bytes": Applied("1500", of_log("segment_index_bytes"), 1500),
    "log.message.timestamp.after.max.ms": Applied(
        "16", of_topic("message_timestamp_after_max_ms"), 16
    ),
    "log.message.timestamp.before.max.ms": Applied(
        "17", of_topic("message_timestamp_before_max_ms"), 17
    ),
    "log.message.timestamp.type": Applied("LogAppendTime", of_log("is_log_append_time"), True),
    "log.preallocate": Applied("true", of_log("preallocate"), True),
    "log.retention.bytes": Applied("18", of_log("retention_bytes"), 18),
    "log.retention.ms": Applied("1900000", of_log("retention_ms"), 1_900_000),
    "log.roll.jitter.ms": Applied("20", of_log("segment_jitter_ms"), 20),
    "log.roll.ms": Applied("2100000", of_log("segment_ms"), 2_100_000),
    "log.segment.bytes": Applied("2200000", of_log("segment_bytes"), 2_200_000),
    "log.segment.delete.delay.ms": Applied("23", of_log("file_delete_delay_ms"), 23),
    "max.connection.creation.rate": Applied("240", of_limits("rate_max"), 240),
    "max.connections": Applied("250", of_limits("connections_max"), 250),
    "max.connections.per.ip": Applied("260", of_limits("per_ip_max"), 260),
    "max.connections.per.ip.overrides": Applied(
        "10.0.0.1:27", of_limits("per_ip_overrides"), {"10.0.0.1": 27}
    ),
    "max.decompressed.message.bytes": Applied("270", of_log("max_decompressed_message_bytes"), 270),
    "message.max.bytes": Applied("2800", of_log("max_message_bytes"), 2800),
    "min.insync.replicas": Applied("2", of_topic("min_insync_replicas"), 2),
    "num.replica.fetchers": Applied("2", _fetchers, 2),
    "producer.id.expiration.ms": Applied("2900", of_log("producer_id_expiration_ms"), 2900),
    "transaction.partition.verification.enable": Applied("false", _is_verified, False),
    "unclean.leader.election.enable": Applied(
        "true", of_topic("unclean_leader_election_enable"), True
    ),
    "leader.replication.throttled.rate": Applied("30", of_throttle("leader"), 30),
    "follower.replication.throttled.rate": Applied("31", of_throttle("follower"), 31),
    "replica.alter.log.dirs.io.max.bytes.per.second": Applied("32", of_throttle("moves"), 32),
    "log.local.retention.ms": Applied("33000", of_log("local_retention_ms"), 33_000),
    "log.local.retention.bytes": Applied("34", of_log("local_retention_bytes"), 34),
    "log.remote.copy.lag.ms": Applied("3500", of_log("remote_copy_lag_ms"), 3500),
    "log.remote.copy.lag.bytes": Applied("36", of_log("remote_copy_lag_bytes"), 36),
    "remote.log.manager.copy.max.bytes.per.second": Applied(
        "35", of_tier(lambda tier: tier.manager.copy_quota.rate), 35
    ),
    "remote.log.manager.fetch.max.bytes.per.second": Applied(
        "36", of_tier(lambda tier: tier.reads.fetch_quota.rate), 36
    ),
    "remote.fetch.max.wait.ms": Applied("37", of_tier(lambda tier: tier.reads.fetch_wait_ms), 37),
    "remote.list.offsets.request.timeout.ms": Applied(
        "38", of_tier(lambda tier: tier.reads.lookup_wait_ms), 38
    ),
    "remote.log.index.file.cache.total.size.bytes": Applied(
        "39", of_tier(lambda tier: tier.reads.index_bytes_max), 39
    ),
    "remote.log.manager.copier.thread.pool.size": Applied(
        "12", of_tier(lambda tier: tier.manager.copiers), 12
    ),
    "remote.log.reader.threads": Applied("13", of_tier(lambda tier: tier.reads.readers), 13),
}
# Altered below, in tests of their own.
LISTENERS = {"listeners", "listener.security.protocol.map"}
CORDONED = "cordoned.log.dirs"
# Keys of TLS stores belong to one listener.
STORES = ("ssl.keystore.", "ssl.truststore.", "ssl.key.password")
# Nothing enforces these yet: only the value that asks for nothing can be set.
SECURITY = ("ssl.", "sasl.")
# Only the value that Kafka has by default can be set: any other would have to load a class.
CLASSES = {"principal.builder.class", "metric.reporters", "config.providers"}


def tier(root: Path) -> tuple[str, ...]:
    """Settings of a node with tiered storage."""
    return (
        "remote.log.storage.system.enable=true",
        "remote.log.metadata.manager.class.name=memory",
        "remote.log.storage.manager.class.name=directory",
        f"rsm.config.directory={root / 'tier'}",
    )


DYNAMIC = {
    key.name: key for key in KEYS[Scope.BROKER].values() if key.update is not Update.READ_ONLY
}


class Wire:
    """A node and a connection to it."""

    def __init__(self, root: Path, listeners: str = "", loaded: Loaded | None = None) -> None:
        self.one = OneNode(loaded or format_one(settings(root, *tier(root), listeners=listeners)))
        self.connection = self.one.call(self._connect())
        created = self.send(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 10_000))
        assert created.topics[0].error_code == ErrorCode.NONE
        self.one.call(self._led())

    async def _connect(self) -> Connection:
        assert self.node.listen_addr is not None
        return await Connection.open(TcpNetwork(), self.node.listen_addr)

    async def _led(self) -> None:
        await self.node.wait_image(lambda image: image.topics.named("t") is not None)

    @property
    def node(self) -> Node:
        return self.one.node

    def send(self, request: Any) -> Any:
        return self.one.call(self.connection.send(request))

    def alter(
        self, name: str, *changes: tuple[str, str | None], validate_only: bool = False
    ) -> tuple[ErrorCode, str | None]:
        configs = [
            AlterableConfig(key, DELETE if text is None else SET, text) for key, text in changes
        ]
        resource = AlterConfigsResource(BROKER, name, configs)
        answer = self.send(
            IncrementalAlterConfigsRequest([resource], validate_only=validate_only)
        ).responses[0]
        assert answer.resource_name == name
        return ErrorCode(answer.error_code), answer.error_message

    def describe(self, name: str, key: str) -> Any:
        resource = DescribeConfigsResource(BROKER, name, [key])
        request = DescribeConfigsRequest([resource], include_synonyms=True)
        found = self.send(request).results[0]
        assert found.error_code == ErrorCode.NONE
        return found.configs[0] if found.configs else None

    def observe(self, observe: Observe) -> object:
        async def look() -> object:
            return observe(self.node)

        return self.one.call(look())

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait for something that follows from an answer, such as a socket that is opened."""

        async def wait() -> None:
            while not condition():  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)

        self.one.call(asyncio.wait_for(wait(), 20))


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    found = Wire(tmp_path_factory.mktemp("node"))
    try:
        yield found
    finally:
        found.one.stop()


def test_every_dynamic_key_is_in_one_of_the_tables() -> None:
    logins = {key for key in DYNAMIC if key.startswith("sasl.")} - set(WITHOUT_EFFECT)
    assert set(APPLIED) | set(WITHOUT_EFFECT) | LISTENERS | {CORDONED} | logins == set(DYNAMIC)
    assert not set(APPLIED) & set(WITHOUT_EFFECT)


@pytest.mark.parametrize("for_all", [False, True], ids=["one broker", "all brokers"])
@pytest.mark.parametrize("key", sorted(APPLIED))
def test_altered_key_is_described_and_applied(wire: Wire, key: str, for_all: bool) -> None:
    row, name = APPLIED[key], "" if for_all else "1"
    source = DYNAMIC_CLUSTER if for_all else DYNAMIC_BROKER
    before = wire.observe(row.observe)
    assert before != row.expected
    if key == "min.insync.replicas":
        # Replicas are eligible to lead by one value for the whole cluster (KIP-966).
        if not for_all:
            assert wire.alter(name, (key, row.text))[0] is ErrorCode.INVALID_CONFIG
            return
        undo: str | None = "1"
    else:
        undo = None
    assert wire.alter(name, (key, row.text)) == (ErrorCode.NONE, None)
    try:
        reply = wire.describe("1", key)
        assert (reply.value, reply.config_source) == (row.text, source)
        assert (reply.synonyms[0].name, reply.synonyms[0].value) == (key, row.text)
        assert reply.synonyms[0].source == source
        assert wire.observe(row.observe) == row.expected
    finally:
        assert wire.alter(name, (key, undo)) == (ErrorCode.NONE, None)
    assert wire.observe(row.observe) == before


@pytest.mark.parametrize("for_all", [False, True], ids=["one broker", "all brokers"])
@pytest.mark.parametrize("key", sorted(set(WITHOUT_EFFECT) - CLASSES))
def test_key_without_effect_is_validated_and_described(
    wire: Wire, key: str, for_all: bool, caplog: pytest.LogCaptureFixture
) -> None:
    row, name = DYNAMIC[key], "" if for_all else "1"
    default = "x" if row.default_value is None else to_text(row.default_value)
    text = default or ""
    if key in THREAD_POOLS:
        text = str(int(text) * 2)
    code, message = wire.alter(name, (key, text))
    is_refused = (
        key.startswith(STORES)
        or (key.startswith(SECURITY) and row.default_value is None)
        or (for_all and row.update is Update.PER_BROKER)
    )
    if is_refused:
        assert code is ErrorCode.INVALID_REQUEST
        assert key in (message or "")
        return
    assert (code, message) == (ErrorCode.NONE, None)
    try:
        reply = wire.describe("1", key)
        assert reply.config_source == (DYNAMIC_CLUSTER if for_all else DYNAMIC_BROKER)
        assert reply.value == (None if row.is_sensitive else text)
        assert f"key altered without effect key={key} " in caplog.text
    finally:
        assert wire.alter(name, (key, None)) == (ErrorCode.NONE, None)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("ssl.client.auth", "required"),
        ("listener.name.plaintext.sasl.enabled.mechanisms", "PLAIN"),
        ("super.users", "User:admin"),
    ],
)
def test_security_setting_cannot_be_changed_at_run_time(wire: Wire, key: str, text: str) -> None:
    code, message = wire.alter("1", (key, text))
    assert code is ErrorCode.INVALID_REQUEST
    assert "configuration file of the node" in (message or "")


@pytest.mark.parametrize(
    ("key", "text", "shown"),
    [
        ("listener.name.internal.ssl.keystore.location", "/temp/test.jks", "/temp/test.jks"),
        ("listener.name.internal.ssl.keystore.password", "secret", None),
        ("listener.name.plaintext.ssl.keystore.location", "/x", "/x"),
    ],
)
def test_stores_of_a_listener_without_tls_are_described(
    wire: Wire, key: str, text: str, shown: str | None
) -> None:
    """The listener INTERNAL can be added afterwards."""
    assert wire.alter("1", (key, text)) == (ErrorCode.NONE, None)
    try:
        assert wire.describe("1", key).value == shown
    finally:
        assert wire.alter("1", (key, None)) == (ErrorCode.NONE, None)


def test_login_setting_belongs_to_one_broker(wire: Wire) -> None:
    """Its effect is in test_dynamic_logins.py."""
    key = "sasl.enabled.mechanisms"
    assert wire.alter("", (key, "PLAIN"))[0] is ErrorCode.INVALID_REQUEST
    assert wire.alter("1", (key, "PLAIN")) == (ErrorCode.NONE, None)
    try:
        assert wire.describe("1", key).value == "PLAIN"
    finally:
        assert wire.alter("1", (key, None)) == (ErrorCode.NONE, None)


@pytest.mark.parametrize("key", sorted(CLASSES))
def test_no_class_can_be_named(wire: Wire, key: str) -> None:
    default = to_text(DYNAMIC[key].default_value) or ""
    assert wire.alter("1", (key, "com.example.Mine"))[0] is ErrorCode.INVALID_REQUEST
    assert wire.alter("1", (key, default)) == (ErrorCode.NONE, None)
    assert wire.alter("1", (key, None)) == (ErrorCode.NONE, None)


@pytest.mark.parametrize("key", THREAD_POOLS)
def test_thread_pool_at_most_doubles_and_halves(wire: Wire, key: str) -> None:
    current = DYNAMIC[key].default_value
    assert isinstance(current, int)
    for text, is_fine in (
        (str(current * 2), True),
        (str(current * 2 + 1), False),
        (str(max(1, current // 2)), True),
        (str(current // 2 - 1), False),
    ):
        code, _ = wire.alter("1", (key, text), validate_only=True)
        assert code is (ErrorCode.NONE if is_fine else ErrorCode.INVALID_REQUEST), text


def test_thread_pool_is_compared_with_the_value_in_force(wire: Wire) -> None:
    key = "num.io.threads"
    for text in ("16", "32"):
        assert wire.alter("1", (key, text))[0] is ErrorCode.NONE
    assert wire.alter("1", (key, "65"))[0] is ErrorCode.INVALID_REQUEST
    # Down to the default at one go is more than half; Kafka refuses that, too.
    assert wire.alter("1", (key, None))[0] is ErrorCode.INVALID_REQUEST
    for text in ("16", None):
        assert wire.alter("1", (key, text))[0] is ErrorCode.NONE


@pytest.mark.parametrize(
    "changes",
    [
        (("log.cleaner.threads", "0"),),
        (("log.cleaner.dedupe.buffer.size", "1048576"),),
        (("log.cleaner.dedupe.buffer.size", "2000000"), ("log.cleaner.threads", "2")),
        (("log.cleaner.io.buffer.load.factor", "0"),),
        (("log.cleaner.io.buffer.load.factor", "NaN"),),
        (("log.retention.ms", "0"),),
        (("log.roll.ms", "0"),),
        (("log.roll.jitter.ms", "-1"),),
        (("log.local.retention.ms", "-1"),),
        (("log.local.retention.ms", str(10**15)),),
        (("log.retention.bytes", "100"), ("log.local.retention.bytes", "101")),
        (("log.retention.bytes", "100"), ("log.local.retention.bytes", "-1")),
        (("log.remote.copy.lag.ms", str(10**15)),),
        (("log.local.retention.bytes", "100"), ("log.remote.copy.lag.bytes", "101")),
        (("log.remote.copy.lag.bytes", "-2"),),
        (("max.decompressed.message.bytes", "0"),),
        (("max.connections.per.ip", "0"),),
        (("max.connections.per.ip.overrides", "x"),),
        (("max.connections.per.ip.overrides", "a:b"),),
        (("listener.name.plaintext.num.network.threads", "100"),),
        (("node.id", "2"),),
        (("num.partitions", "2"),),
        (("advertised.listeners", "PLAINTEXT://127.0.0.1:1"),),
        (("compression.type", "none"),),
        (("log.segment.bytes", "10"),),
    ],
    ids=str,
)
def test_values_are_validated_together(wire: Wire, changes: tuple[tuple[str, str], ...]) -> None:
    assert wire.alter("1", *changes)[0] is ErrorCode.INVALID_REQUEST
    assert wire.describe("1", changes[0][0]) is None or (
        wire.describe("1", changes[0][0]).config_source != DYNAMIC_BROKER
    )


@pytest.mark.parametrize(
    "changes",
    [
        (("max.connections.per.ip", "0"), ("max.connections.per.ip.overrides", "127.0.0.1:5")),
        (("log.retention.ms", "-1"), ("log.local.retention.ms", "-1")),
        (("log.local.retention.bytes", "-1"),),
        (("listener.name.plaintext.max.connections", "5"),),
        (("my.own.key", "3"),),
    ],
    ids=str,
)
def test_values_that_fit_together_are_accepted(
    wire: Wire, changes: tuple[tuple[str, str], ...]
) -> None:
    assert wire.alter("1", *changes, validate_only=True) == (ErrorCode.NONE, None)


@pytest.mark.parametrize("name", ["2", "x", "-1", " 1"])
def test_other_brokers_are_refused(wire: Wire, name: str) -> None:
    code, _ = wire.alter(name, ("log.retention.ms", "1000"))
    assert code is ErrorCode.INVALID_REQUEST


def test_broker_id_with_leading_zeros_is_this_broker(wire: Wire) -> None:
    assert wire.alter("01", ("log.retention.ms", "77000"))[0] is ErrorCode.NONE
    assert wire.observe(of_log("retention_ms")) == 77_000
    assert wire.alter("1", ("log.retention.ms", None))[0] is ErrorCode.NONE


def test_log_directories_are_not_cordoned_below_their_metadata_version(wire: Wire) -> None:
    assert wire.alter("1", (CORDONED, "*"))[0] is ErrorCode.INVALID_CONFIG
    assert wire.observe(_cordons) == [False]


def test_log_directories_are_cordoned_by_their_broker_only(tmp_path: Path) -> None:
    loaded = format_one(settings(tmp_path, *tier(tmp_path)), release_version="4.3-IV0")
    wire = Wire(tmp_path, loaded=loaded)
    try:
        assert wire.alter("", (CORDONED, "*"))[0] is ErrorCode.INVALID_REQUEST
        assert wire.alter("1", (CORDONED, "/elsewhere"))[0] is ErrorCode.INVALID_REQUEST
        assert wire.observe(_cordons) == [False]
        assert wire.alter("1", (CORDONED, str(tmp_path / "data"))) == (ErrorCode.NONE, None)
        assert wire.describe("1", CORDONED).config_source == DYNAMIC_BROKER
        assert wire.observe(_cordons) == [True]
        assert wire.alter("1", (CORDONED, None)) == (ErrorCode.NONE, None)
        assert wire.observe(_cordons) == [False]
    finally:
        wire.one.stop()


@pytest.mark.parametrize("kind", [0, 3, 99, -1])
def test_unknown_resource_type_is_an_invalid_request(wire: Wire, kind: int) -> None:
    resource = AlterConfigsResource(kind, "x", [AlterableConfig("a", SET, "b")])
    answer = wire.send(IncrementalAlterConfigsRequest([resource])).responses[0]
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_answers_come_in_the_order_of_the_request(wire: Wire) -> None:
    names = ["t", "2", "nope", "1", "t2"]
    kinds = [2, BROKER, 2, BROKER, 99]
    resources = [
        AlterConfigsResource(kind, name, [AlterableConfig("x.y", DELETE, None)])
        for kind, name in zip(kinds, names, strict=True)
    ]
    answers = wire.send(IncrementalAlterConfigsRequest(resources)).responses
    assert [(a.resource_type, a.resource_name, a.error_code) for a in answers] == [
        (2, "t", ErrorCode.NONE),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (2, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "1", ErrorCode.NONE),
        (99, "t2", ErrorCode.INVALID_REQUEST),
    ]
    assert [a.error_message is None for a in answers] == [True, False, False, True, False]


def test_log_level_changes_while_the_node_runs(wire: Wire) -> None:
    def change(level: str | None) -> int:
        operation = DELETE if level is None else SET
        resource = AlterConfigsResource(8, "1", [AlterableConfig("ottla.node", operation, level)])
        request = IncrementalAlterConfigsRequest([resource])
        code: int = wire.send(request).responses[0].error_code
        return code

    logger = logging.getLogger("ottla.node.handle")
    before = logger.getEffectiveLevel()
    assert change("ERROR") == ErrorCode.NONE
    try:
        assert not logger.isEnabledFor(logging.WARNING)
        resource = DescribeConfigsResource(8, "1", ["ottla.node.handle"])
        (reply,) = wire.send(DescribeConfigsRequest([resource])).results[0].configs
        assert (reply.value, reply.config_source) == ("ERROR", 6)
    finally:
        assert change(None) == ErrorCode.NONE
    assert logger.getEffectiveLevel() == before


def test_controller_listener_describes_and_changes_its_loggers(wire: Wire) -> None:
    async def asked(request: Any) -> Any:
        assert wire.node.controller_addr is not None
        connection = await Connection.open(TcpNetwork(), wire.node.controller_addr)
        try:
            return await connection.send(request)
        finally:
            await connection.close()

    def change(operation: int, level: str | None) -> list[int]:
        resources = [
            AlterConfigsResource(8, "1", [AlterableConfig("ottla.raft", operation, level)]),
            AlterConfigsResource(BROKER, "", [AlterableConfig("my.key", DELETE, None)]),
            AlterConfigsResource(8, "2", [AlterableConfig("root", SET, "INFO")]),
        ]
        answers = wire.one.call(asked(IncrementalAlterConfigsRequest(resources))).responses
        codes = {(a.resource_type, a.resource_name): a.error_code for a in answers}
        return [codes[8, "1"], codes[BROKER, ""], codes[8, "2"]]

    assert change(SET, "ERROR") == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    try:
        loggers = DescribeConfigsResource(8, "1", ["ottla.raft"])
        broker = DescribeConfigsResource(BROKER, "1", ["node.id"])
        replies = wire.one.call(asked(DescribeConfigsRequest([loggers, broker]))).results
        assert [[c.value for c in each.configs] for each in replies] == [["ERROR"], ["1"]]
    finally:
        assert change(DELETE, None)[0] == ErrorCode.NONE
