"""Kafka's keys that have no effect here, with the reason; and keys that Kafka itself removed.

Most name Java classes or size thread pools. Ignoring those is harmless and causes a warning. If
ignoring a key would weaken what the operator configured, as with a policy or a credential check,
the value is rejected instead.
"""

import msgspec

from ottla.config.key_definition import Key
from ottla.config.values import Value, to_text

_POOL = "a node has one event loop and no thread pools"
_JMX = "there is no JMX; see ottla.metrics.listener"
_PURGATORY = "waiting requests are removed when they complete; nothing is purged"
_JAVA_TLS = "TLS comes from OpenSSL, not from Java"
_CLASS = "Java classes cannot be loaded"
_EXPIRATION = "a partition expires remote segments after it has copied its own"
_QUOTA_WINDOW = "the quota is enforced by debt, with one second of credit"
_SAMPLES = "metrics are exported as totals and gauges, without samples"
_LOAD = "a coordinator reads its partition in steps of a fixed size"
_INTERNAL = "a limit for Kafka's own tests; it is fixed here"
_UNSTABLE = "only versions that Kafka has declared stable are offered"
_SLOW_EVENTS = "slow work of a controller shows as event loop lag in the metrics"
_SETUP = "connections between nodes have a fixed time to be set up"


class Unsupported(msgspec.Struct, frozen=True):
    """Why a key has no effect. ``accepted`` values have one all the same.

    A ``refused`` key with any other value stops the node; else there is a warning.
    """

    reason: str
    refused: bool = False
    accepted: tuple[str, ...] = ()


UNSUPPORTED_KEYS: dict[str, Unsupported] = {
    "authorizer.class.name": Unsupported(
        "the only authorizer is org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        refused=True,
        accepted=("", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ),
    "replica.selector.class": Unsupported(
        _CLASS,
        refused=True,
        accepted=(
            "",
            "org.apache.kafka.common.replica.LeaderSelector",
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        ),
    ),
    "alter.config.policy.class.name": Unsupported(_CLASS, refused=True),
    "client.quota.callback.class": Unsupported(_CLASS, refused=True),
    "config.providers": Unsupported(
        "references are resolved in a node's own settings only, not in values set at run time",
        refused=True,
    ),
    "create.topic.policy.class.name": Unsupported(_CLASS, refused=True),
    "principal.builder.class": Unsupported(_CLASS, refused=True),
    "sasl.oauthbearer.jwt.retriever.class": Unsupported(_CLASS, refused=True),
    "sasl.oauthbearer.jwt.validator.class": Unsupported(_CLASS, refused=True),
    "sasl.server.callback.handler.class": Unsupported(
        _CLASS,
        refused=True,
        accepted=(
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
            # Believes tokens without a signature: for development, and only if it is named.
            "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
            "OAuthBearerUnsecuredValidatorCallbackHandler",
        ),
    ),
    "ssl.engine.factory.class": Unsupported(_CLASS, refused=True),
    "background.threads": Unsupported(_POOL),
    "group.coordinator.threads": Unsupported(_POOL),
    "num.io.threads": Unsupported(_POOL),
    "num.network.threads": Unsupported(_POOL),
    "share.coordinator.threads": Unsupported(_POOL),
    "remote.log.manager.thread.pool.size": Unsupported(
        "deprecated; set remote.log.manager.follower.thread.pool.size"
    ),
    "kafka.metrics.polling.interval.secs": Unsupported(_JMX),
    "kafka.metrics.reporters": Unsupported(_JMX),
    "metric.reporters": Unsupported(_JMX),
    "delete.records.purgatory.purge.interval.requests": Unsupported(_PURGATORY),
    "fetch.purgatory.purge.interval.requests": Unsupported(_PURGATORY),
    "producer.purgatory.purge.interval.requests": Unsupported(_PURGATORY),
    "share.fetch.purgatory.purge.interval.requests": Unsupported(_PURGATORY),
    "group.share.persister.class.name": Unsupported(_CLASS),
    "remote.log.metadata.manager.class.path": Unsupported(_CLASS),
    "remote.log.storage.manager.class.path": Unsupported(_CLASS),
    "controller.performance.sample.period.ms": Unsupported(_SLOW_EVENTS),
    "controller.performance.always.log.threshold.ms": Unsupported(_SLOW_EVENTS),
    "internal.metadata.max.batch.size.in.bytes": Unsupported(_INTERNAL),
    "internal.metadata.max.fetch.size.in.bytes": Unsupported(_INTERNAL),
    "internal.metadata.delete.delay.millis": Unsupported(_INTERNAL),
    "unstable.api.versions.enable": Unsupported(_UNSTABLE),
    "unstable.feature.versions.enable": Unsupported(_UNSTABLE),
    "metrics.num.samples": Unsupported(_SAMPLES),
    "metrics.sample.window.ms": Unsupported(_SAMPLES),
    "metrics.recording.level": Unsupported(_SAMPLES),
    "socket.connection.setup.timeout.ms": Unsupported(_SETUP),
    "socket.connection.setup.timeout.max.ms": Unsupported(_SETUP),
    "offsets.load.buffer.size": Unsupported(_LOAD),
    "share.coordinator.load.buffer.size": Unsupported(_LOAD),
    "transaction.state.log.load.buffer.size": Unsupported(_LOAD),
    "remote.log.manager.expiration.thread.pool.size": Unsupported(_EXPIRATION),
    "remote.log.manager.follower.thread.pool.size": Unsupported(_POOL),
    "remote.log.manager.copy.quota.window.num": Unsupported(_QUOTA_WINDOW),
    "remote.log.manager.copy.quota.window.size.seconds": Unsupported(_QUOTA_WINDOW),
    "remote.log.manager.fetch.quota.window.num": Unsupported(_QUOTA_WINDOW),
    "remote.log.manager.fetch.quota.window.size.seconds": Unsupported(_QUOTA_WINDOW),
    "initial.broker.registration.timeout.ms": Unsupported(
        "a broker tries to register until it is stopped"
    ),
    "server.max.startup.time.ms": Unsupported("a start takes as long as recovery takes"),
    "controller.quorum.append.linger.ms": Unsupported(
        "records are appended as soon as they are decided"
    ),
    "controller.socket.timeout.ms": Unsupported("controllers open no connections to brokers"),
    "queued.max.requests": Unsupported(
        "requests are not queued: a connection is read again once it was served"
    ),
    "log.dir.failure.timeout.ms": Unsupported(
        "a failed directory is reported until a controller has answered"
    ),
    "log.flush.start.offset.checkpoint.interval.ms": Unsupported(
        "log start offsets are written together with recovery points"
    ),
    "replica.socket.receive.buffer.bytes": Unsupported(
        "replica fetchers use the system's socket buffers"
    ),
    "group.share.enable": Unsupported("the feature share.version decides"),
    "group.share.initialize.retry.interval.ms": Unsupported(
        "share partitions are initialized when the group is first assigned them"
    ),
    "share.coordinator.append.linger.ms": Unsupported(
        "records of a turn of the event loop are appended together, without a wait"
    ),
    "transaction.two.phase.commit.enable": Unsupported(
        "two-phase commit (KIP-939) is not there yet", refused=True
    ),
    "sasl.client.callback.handler.class": Unsupported(_CLASS),
    "sasl.kerberos.kinit.cmd": Unsupported("no command is run to obtain a ticket"),
    "sasl.login.callback.handler.class": Unsupported(_CLASS),
    "sasl.login.class": Unsupported(_CLASS),
    "security.providers": Unsupported(_JAVA_TLS),
    "ssl.keymanager.algorithm": Unsupported(_JAVA_TLS),
    "ssl.provider": Unsupported(_JAVA_TLS),
    "ssl.secure.random.implementation": Unsupported(_JAVA_TLS),
    "ssl.trustmanager.algorithm": Unsupported(_JAVA_TLS),
}


def unsupported_value(key: Key, value: Value) -> str | None:
    """Return why a key without effect may not have this value; None if it may."""
    unsupported = UNSUPPORTED_KEYS.get(key.name)
    if unsupported is None or not unsupported.refused:
        return None
    if value == key.default or not value or to_text(value) in unsupported.accepted:
        return None
    return f"has no effect here: {unsupported.reason}"


_ZOOKEEPER = "Kafka 4 has no ZooKeeper"
_FEATURE = "replaced by feature levels; see UpdateFeatures"

REMOVED_KEYS: dict[str, str] = {
    "auto.include.jmx.reporter": _JMX,
    "broker.id.generation.enable": _ZOOKEEPER,
    "control.plane.listener.name": _ZOOKEEPER,
    "controlled.shutdown.max.retries": _ZOOKEEPER,
    "controlled.shutdown.retry.backoff.ms": _ZOOKEEPER,
    "delegation.token.master.key": "renamed to delegation.token.secret.key",
    "group.coordinator.new.enable": "the new group coordinator is always used",
    "inter.broker.protocol.version": _FEATURE,
    "leader.imbalance.per.broker.percentage": (
        "removed in Kafka 4; use ottla.leader.imbalance.per.broker.percentage"
    ),
    "log.message.downconversion.enable": "message formats 0 and 1 were removed",
    "log.message.format.version": "message formats 0 and 1 were removed",
    "log.message.timestamp.difference.max.ms": (
        "split into log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms"
    ),
    "offsets.commit.required.acks": "commits always wait for all replicas in sync",
    "reserved.broker.max.id": _ZOOKEEPER,
    "transactional.id.state.max.timeout.ms": "renamed to transactional.id.expiration.ms",
}
REMOVED_PREFIXES: dict[str, str] = {
    "zookeeper.": _ZOOKEEPER,
    "password.encoder.": "secrets are no longer stored in ZooKeeper",
}


def reason_of_removal(name: str) -> str | None:
    """Return why Kafka removed this key; None if it never had it, or still has it."""
    if name in REMOVED_KEYS:
        return REMOVED_KEYS[name]
    return next((why for prefix, why in REMOVED_PREFIXES.items() if name.startswith(prefix)), None)
