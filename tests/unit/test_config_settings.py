"""Loading: precedence, warnings, and every problem at once."""

import pytest

from ottla.config.loading import Loaded, for_listener, load
from ottla.config.problems import ConfigError

MINIMAL = """
node.id=1
process.roles=broker,controller
listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=localhost:9093
"""


def loaded(*lines: str) -> Loaded:
    return load(MINIMAL + "\n".join(lines))


def problems(*lines: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        loaded(*lines)
    return {problem.key: str(problem) for problem in caught.value.problems}


def test_minimal_config_has_kafkas_defaults_and_no_warnings() -> None:
    config = loaded()
    assert config.warnings == ()
    assert config.broker.node_id == config.broker.broker_id == 1
    assert config.broker.log_segment_bytes == 1 << 30
    assert config.broker.process_roles == ("broker", "controller")


def test_overrides_take_precedence_over_environment_over_file() -> None:
    text = MINIMAL + "num.partitions=1\nlog.dirs=/file\nmin.insync.replicas=1"
    environment = {"KAFKA_LOG_DIRS": "/env", "KAFKA_MIN_INSYNC_REPLICAS": "2"}
    config = load(text, environment, ["min.insync.replicas=3"]).broker
    assert (config.num_partitions, config.log_dirs, config.min_insync_replicas) == (1, ("/env",), 3)


def test_invalid_value_is_reported_with_key_value_and_rule() -> None:
    found = problems("num.partitions=0")
    assert found == {"num.partitions": "num.partitions=0 (line 7): Value must be at least 1"}


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load("num.partitions=0\nlog.preallocate=maybe\nlog.dirs=")
    message = str(caught.value)
    for part in (
        "num.partitions=0 (line 1): Value must be at least 1",
        "log.preallocate=maybe (line 2): must be true or false",
        "log.dirs= (line 3): must not be empty",
        "node.id: must be set",
        "process.roles: must be set",
        "controller.listener.names: must be set",
    ):
        assert part in message


def test_secrets_appear_in_no_message_and_no_repr() -> None:
    config = loaded("sasl.jaas.config=hunter2", "listener.name.plaintext.ssl.key.password=hunter2")
    assert config.broker.sasl_jaas_config is not None
    assert config.broker.sasl_jaas_config.reveal() == "hunter2"
    assert "hunter2" not in repr(config)


def test_unknown_key_is_kept_with_a_suggestion() -> None:
    config = loaded("log.retension.ms=5")
    assert [str(warning) for warning in config.warnings] == [
        "log.retension.ms: unknown key; did you mean log.retention.ms? (line 7)"
    ]
    assert config.static["log.retension.ms"] == "5"


def test_unknown_key_without_similar_keys_causes_a_warning() -> None:
    (warning,) = loaded("qqqq=1").warnings
    assert warning.message == "unknown key (line 7)"


def test_remote_storage_and_listener_keys_are_recognised_by_prefix() -> None:
    config = loaded(
        "rlmm.config.remote.log.metadata.topic.num.partitions=5",
        "rsm.config.dir=/x",
        "listener.name.plaintext.ssl.client.auth=required",
    )
    assert config.warnings == ()
    moved = loaded("remote.log.storage.manager.impl.prefix=mine.", "mine.dir=/x", "rsm.config.a=1")
    assert [warning.key for warning in moved.warnings] == ["rsm.config.a"]


def test_key_without_effect_causes_a_warning_unless_default() -> None:
    (warning,) = loaded("num.io.threads=9", "num.network.threads=3").warnings
    assert warning.key == "num.io.threads" and "no effect" in warning.message


def test_key_that_is_unsafe_to_ignore_is_rejected() -> None:
    assert (
        "no effect"
        in problems("create.topic.policy.class.name=x.Y")["create.topic.policy.class.name"]
    )
    for name in ("x.Y", "kafka.security.authorizer.AclAuthorizer"):
        problem = problems(f"authorizer.class.name={name}")["authorizer.class.name"]
        assert "the only authorizer is" in problem
    standard = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    assert loaded(f"authorizer.class.name={standard}").broker.authorizer_class_name == standard


def test_config_provider_without_a_class_is_rejected() -> None:
    config = loaded("log.dirs=${env:HOME}/logs")
    assert config.broker.log_dirs == ("${env:HOME}/logs",)
    assert "config.providers.env.class" in problems("config.providers=env")


def test_removed_key_is_reported_with_the_reason() -> None:
    (warning,) = loaded("zookeeper.connect=a:2181").warnings
    assert "no ZooKeeper" in warning.message


def test_repeated_key_causes_a_warning_and_the_last_is_used() -> None:
    config = loaded("num.partitions=3", "num.partitions=4")
    assert config.broker.num_partitions == 4
    (warning,) = config.warnings
    assert warning.message == "given on line 7 and line 8; the last one is used"


def test_unparsable_file_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="line 1"):
        load("a=\\u00")
    with pytest.raises(ConfigError, match="key=value"):
        load(MINIMAL, overrides=["nonsense"])


def test_broker_id_is_used_as_node_id() -> None:
    text = MINIMAL.replace("node.id=1", "broker.id=7")
    assert load(text).broker.node_id == 7
    assert "must equal node.id=1" in problems("broker.id=2")["broker.id"]


def test_throttles_in_the_file_are_rejected() -> None:
    assert (
        "run time"
        in problems("leader.replication.throttled.rate=5")["leader.replication.throttled.rate"]
    )


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        (["log.retention.ms=0"], "log.retention.ms"),
        (["log.retention.hours=0"], "log.retention.hours"),
        (["log.roll.ms=0"], "log.roll.ms"),
        (["log.cleaner.dedupe.buffer.size=2097152", "log.cleaner.threads=2"],
         "log.cleaner.dedupe.buffer.size"),
        (["offsets.topic.compression.codec=5"], "offsets.topic.compression.codec"),
        (["replica.fetch.wait.max.ms=30001"], "replica.fetch.wait.max.ms"),
        (["broker.heartbeat.interval.ms=5000"], "broker.heartbeat.interval.ms"),
        (["queued.max.request.bytes=1024"], "queued.max.request.bytes"),
        (["max.connections.per.ip=0"], "max.connections.per.ip"),
        (["connections.max.idle.ms=100"], "connection.failed.authentication.delay.ms"),
        (["group.consumer.session.timeout.ms=60001"], "group.consumer.session.timeout.ms"),
        (["group.share.min.record.lock.duration.ms=30000",
          "group.share.record.lock.duration.ms=20000"], "group.share.record.lock.duration.ms"),
        (["group.streams.num.standby.replicas=3"], "group.streams.num.standby.replicas"),
        (["group.streams.min.heartbeat.interval.ms=1", "group.streams.heartbeat.interval.ms=2",
          "group.streams.min.session.timeout.ms=1", "group.streams.session.timeout.ms=2"],
         "group.streams.heartbeat.interval.ms"),
        (["group.min.session.timeout.ms=9", "group.max.session.timeout.ms=8"],
         "group.min.session.timeout.ms"),
        (["group.share.assignors=a,b"], "group.share.assignors"),
        (["ottla.controller.heartbeat.interval.ms=334"],
         "ottla.controller.heartbeat.interval.ms"),
        (["controller.quorum.voters=2@a:1"], "controller.quorum.voters"),
        (["controller.quorum.voters=1@a:1,1@b:1"], "controller.quorum.voters"),
        (["controller.quorum.voters=1@a:1", "controller.quorum.auto.join.enable=true"],
         "controller.quorum.auto.join.enable"),
        (["controller.quorum.bootstrap.servers="], "controller.quorum.bootstrap.servers"),
        (["early.start.listeners=NOBODY"], "early.start.listeners"),
    ],
    ids=lambda item: item if isinstance(item, str) else None,
)  # fmt: skip
def test_conflicting_keys_are_reported(lines: list[str], key: str) -> None:
    assert list(problems(*lines)) == [key]


def test_listener_and_mechanism_settings_override_general_ones() -> None:
    config = loaded(
        "sasl.jaas.config=common",
        "listener.name.plaintext.sasl.jaas.config=of-listener",
        "listener.name.plaintext.plain.sasl.jaas.config=of-mechanism",
        "listener.name.plaintext.max.connections=5",
    )

    def jaas(listener: str, mechanism: str | None) -> str:
        found = for_listener(config, listener, mechanism).sasl_jaas_config
        assert found is not None
        return found.reveal()

    assert jaas("PLAINTEXT", "PLAIN") == "of-mechanism"
    assert jaas("PLAINTEXT", "GSSAPI") == "of-listener"
    assert jaas("CONTROLLER", "PLAIN") == "common"
    assert for_listener(config, "plaintext").max_connections == 5
    assert config.broker.max_connections == 2**31 - 1


def test_invalid_listener_key_is_reported_at_load() -> None:
    name = "listener.name.plaintext.max.connections"
    assert list(problems(f"{name}=-1")) == [name]


def test_inter_broker_mechanism_must_be_enabled() -> None:
    lines = [
        "listeners=SASL_PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "listener.security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "security.inter.broker.protocol=SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol=PLAIN",
    ]
    assert list(problems(*lines)) == ["sasl.mechanism.inter.broker.protocol"]
    loaded(*lines, "listener.name.sasl_plaintext.sasl.enabled.mechanisms=PLAIN")
