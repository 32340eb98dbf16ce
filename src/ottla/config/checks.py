"""Conditions between keys, as Kafka checks them; each names the key to change."""

from collections.abc import Iterator, Mapping

from ottla.config.addresses import BadAddress, parse_host_counts, parse_voter
from ottla.config.generated import BrokerConfig, GroupConfig, TopicConfig
from ottla.config.listeners import Listeners
from ottla.config.problems import Problem

MEGABYTE = 1024 * 1024
COMPRESSION_CODECS = range(5)
# All log directories, as an item of cordoned.log.dirs.
ALL_DIRECTORIES = "*"


def broker_problems(config: BrokerConfig, listeners: Listeners) -> Iterator[Problem]:
    """Return everything wrong with the combination of a node's settings."""
    yield from _node(config)
    yield from _roles(config, listeners)
    yield from _log(config)
    yield from _replication(config)
    yield from _network(config)
    yield from _groups(config)


def dynamic_broker_problems(config: BrokerConfig) -> Iterator[Problem]:
    """Return everything wrong with the combination of settings that can be altered at run time."""
    yield from _log(config)
    yield from _network(config)
    try:
        parse_host_counts(config.max_connections_per_ip_overrides)
    except BadAddress as error:
        text = config.max_connections_per_ip_overrides
        yield Problem("max.connections.per.ip.overrides", text, str(error))


def _metrics(config: BrokerConfig) -> Iterator[Problem]:
    user, password = config.ottla_metrics_user, config.ottla_metrics_password
    if (user is None) != (password is None):
        key = "ottla.metrics.password" if password is None else "ottla.metrics.user"
        yield Problem(key, None, "must be set: basic authentication needs a user and a password")
    for key, secret in (
        ("ottla.metrics.password", password),
        ("ottla.metrics.bearer.token", config.ottla_metrics_bearer_token),
    ):
        if secret is not None and not secret.reveal():
            yield Problem(key, None, "must not be empty")


def _otlp(config: BrokerConfig) -> Iterator[Problem]:
    urls = {
        "ottla.otlp.endpoint": config.ottla_otlp_endpoint,
        "ottla.otlp.metrics.endpoint": config.ottla_otlp_metrics_endpoint,
        "ottla.otlp.traces.endpoint": config.ottla_otlp_traces_endpoint,
    }
    found = {key: url for key, url in urls.items() if url is not None}
    headers = config.ottla_otlp_headers.reveal() if config.ottla_otlp_headers else ""
    if found or headers:
        yield from _otlp_texts(found, headers)
    if config.ottla_otlp_client_key is not None and config.ottla_otlp_client_certificate is None:
        rule = "must be set, because ottla.otlp.client.key is"
        yield Problem("ottla.otlp.client.certificate", None, rule)


def _otlp_texts(urls: Mapping[str, str], headers: str) -> Iterator[Problem]:
    # Few nodes export anything.
    from ottla.config.otlp_headers import BadOtlpSetting, check_otlp_url, parse_headers

    for key, url in urls.items():
        try:
            check_otlp_url(url)
        except BadOtlpSetting as error:
            yield Problem(key, None, str(error))
    try:
        parse_headers(headers)
    except BadOtlpSetting as error:
        yield Problem("ottla.otlp.headers", None, str(error))


def _node(config: BrokerConfig) -> Iterator[Problem]:
    if config.broker_id != config.node_id:
        yield Problem("broker.id", str(config.broker_id), f"must equal node.id={config.node_id}")
    yield from _metrics(config)
    yield from _otlp(config)
    voters = [parse_voter(text).id for text in config.controller_quorum_voters]
    if not voters and not config.controller_quorum_bootstrap_servers:
        rule = "must be set, unless controller.quorum.voters is"
        yield Problem("controller.quorum.bootstrap.servers", None, rule)
    if len(set(voters)) != len(voters):
        yield Problem("controller.quorum.voters", None, "must not contain a voter twice")
    is_controller = "controller" in config.process_roles
    if voters and is_controller and config.node_id not in voters:
        yield Problem("controller.quorum.voters", None, f"must contain this node, {config.node_id}")
    if not is_controller and config.node_id in voters:
        rule = f"must not contain this node, {config.node_id}: it is not a controller"
        yield Problem("controller.quorum.voters", None, rule)
    if voters and config.controller_quorum_auto_join_enable:
        yield Problem("controller.quorum.auto.join.enable", "true", "needs a dynamic quorum")
    if config.ottla_controller_heartbeat_interval_ms * 3 > (
        config.controller_quorum_election_timeout_ms
    ):
        yield Problem(
            "ottla.controller.heartbeat.interval.ms",
            str(config.ottla_controller_heartbeat_interval_ms),
            "must be at most a third of controller.quorum.election.timeout.ms",
        )


def _roles(config: BrokerConfig, listeners: Listeners) -> Iterator[Problem]:
    names = {listener.name for listener in listeners.all}
    controllers = [name.upper() for name in config.controller_listener_names]
    for name in controllers:
        if name not in listeners.protocols:
            rule = "must have an entry in listener.security.protocol.map"
            yield Problem("controller.listener.names", name, rule)
    if "controller" in config.process_roles:
        if not names & set(controllers):
            yield Problem("controller.listener.names", None, "must be one of listeners")
    elif taken := sorted(names & set(controllers)):
        rule = "must not contain controller listeners: this node is not a controller"
        yield Problem("listeners", ",".join(taken), rule)
    if "broker" not in config.process_roles and (others := sorted(names - set(controllers))):
        rule = "must contain controller listeners only: this node is not a broker"
        yield Problem("listeners", ",".join(others), rule)
    for name in config.early_start_listeners or ():
        if name.upper() not in names:
            yield Problem("early.start.listeners", name, "must be one of listeners")


def _log(config: BrokerConfig) -> Iterator[Problem]:
    yield from _cordoned(config)
    for key, value in (
        ("log.retention.ms", config.log_retention_ms),
        ("log.retention.minutes", config.log_retention_minutes),
        ("log.retention.hours", config.log_retention_hours),
    ):
        if value == 0:
            yield Problem(key, "0", "must be -1 (unlimited) or at least 1")
    if config.log_roll_ms is not None and config.log_roll_ms < 1:
        yield Problem("log.roll.ms", str(config.log_roll_ms), "must be at least 1")
    if config.log_roll_jitter_ms is not None and config.log_roll_jitter_ms < 0:
        yield Problem("log.roll.jitter.ms", str(config.log_roll_jitter_ms), "must be at least 0")
    if config.log_cleaner_dedupe_buffer_size // max(config.log_cleaner_threads, 1) <= MEGABYTE:
        yield Problem(
            "log.cleaner.dedupe.buffer.size",
            str(config.log_cleaner_dedupe_buffer_size),
            "must be greater than 1048576 per thread of log.cleaner.threads",
        )
    # NaN is not greater than 0 either.
    if not config.log_cleaner_io_buffer_load_factor > 0:
        factor = config.log_cleaner_io_buffer_load_factor
        yield Problem("log.cleaner.io.buffer.load.factor", str(factor), "must be greater than 0")
    for key, codec in (
        ("offsets.topic.compression.codec", config.offsets_topic_compression_codec),
        (
            "share.coordinator.state.topic.compression.codec",
            config.share_coordinator_state_topic_compression_codec,
        ),
    ):
        if codec not in COMPRESSION_CODECS:
            yield Problem(key, str(codec), "must be 0 none, 1 gzip, 2 snappy, 3 lz4 or 4 zstd")


def _cordoned(config: BrokerConfig) -> Iterator[Problem]:
    if "broker" not in config.process_roles:
        return
    key, cordoned = "cordoned.log.dirs", config.cordoned_log_dirs
    if ALL_DIRECTORIES in cordoned:
        if len(cordoned) > 1:
            yield Problem(key, ",".join(cordoned), "must have no other item beside *")
        return
    for path in cordoned:
        if path not in (config.log_dirs or config.log_dir):
            yield Problem(key, path, "must be one of log.dirs, or of log.dir if that is not set")


def _replication(config: BrokerConfig) -> Iterator[Problem]:
    wait = config.replica_fetch_wait_max_ms
    for key, bound in (
        ("replica.socket.timeout.ms", config.replica_socket_timeout_ms),
        ("replica.lag.time.max.ms", config.replica_lag_time_max_ms),
    ):
        if wait > bound:
            yield Problem("replica.fetch.wait.max.ms", str(wait), f"must be at most {key}={bound}")
    if config.broker_heartbeat_interval_ms > config.broker_session_timeout_ms / 2:
        yield Problem(
            "broker.heartbeat.interval.ms",
            str(config.broker_heartbeat_interval_ms),
            "must be at most half of broker.session.timeout.ms",
        )


def _network(config: BrokerConfig) -> Iterator[Problem]:
    queued = config.queued_max_request_bytes
    if 0 < queued < config.socket_request_max_bytes:
        rule = "must be at least socket.request.max.bytes"
        yield Problem("queued.max.request.bytes", str(queued), rule)
    if config.max_connections_per_ip == 0 and not config.max_connections_per_ip_overrides:
        rule = "must not be 0 without max.connections.per.ip.overrides"
        yield Problem("max.connections.per.ip", "0", rule)
    idle = config.connections_max_idle_ms
    if 0 <= idle <= config.connection_failed_authentication_delay_ms:
        yield Problem(
            "connection.failed.authentication.delay.ms",
            str(config.connection_failed_authentication_delay_ms),
            f"must be less than connections.max.idle.ms={idle}",
        )


def _groups(config: BrokerConfig) -> Iterator[Problem]:
    for kind in ("consumer", "share", "streams"):
        for what in ("session.timeout.ms", "heartbeat.interval.ms"):
            yield from _within(config, f"group.{kind}.", what)
        heartbeat = _read(config, f"group.{kind}.heartbeat.interval.ms")
        session = _read(config, f"group.{kind}.session.timeout.ms")
        if heartbeat >= session:
            key = f"group.{kind}.heartbeat.interval.ms"
            yield Problem(key, str(heartbeat), f"must be less than group.{kind}.session.timeout.ms")
    yield from _within(config, "group.share.", "record.lock.duration.ms")
    yield from _standbys("group.", config.group_streams_num_standby_replicas, config)
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        yield Problem(
            "group.min.session.timeout.ms",
            str(config.group_min_session_timeout_ms),
            "must be at most group.max.session.timeout.ms",
        )
    if len(config.group_share_assignors) != 1:
        yield Problem(
            "group.share.assignors", ",".join(config.group_share_assignors), "must be exactly one"
        )


def _within(config: BrokerConfig, prefix: str, what: str) -> Iterator[Problem]:
    low = _read(config, f"{prefix}min.{what}")
    high = _read(config, f"{prefix}max.{what}")
    value = _read(config, prefix + what)
    if not low <= value <= high:
        rule = f"must be between {prefix}min.{what}={low} and {prefix}max.{what}={high}"
        yield Problem(prefix + what, str(value), rule)


def _read(config: BrokerConfig, name: str) -> int:
    value = getattr(config, name.replace(".", "_"))
    assert isinstance(value, int)
    return value


def topic_problems(config: TopicConfig) -> Iterator[Problem]:
    """Return everything wrong with the combination of a topic's settings."""
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        yield Problem(
            "min.compaction.lag.ms",
            str(config.min_compaction_lag_ms),
            f"must be at most max.compaction.lag.ms={config.max_compaction_lag_ms}",
        )
    if not config.remote_storage_enable:
        return
    if "compact" in config.cleanup_policy:
        rule = "must not be compact with remote.storage.enable"
        yield Problem("cleanup.policy", ",".join(config.cleanup_policy), rule)
    for key, local, whole in (
        ("retention.ms", config.local_retention_ms, config.retention_ms),
        ("retention.bytes", config.local_retention_bytes, config.retention_bytes),
    ):
        # -2 follows the total retention; a retention of -1 allows any value.
        if local != -2 and whole != -1 and (local == -1 or local > whole):
            rule = f"must be at most {key}={whole} or -2 to follow it"
            yield Problem(f"local.{key}", str(local), rule)
    for unit, lag, local, whole in (
        ("ms", config.remote_copy_lag_ms, config.local_retention_ms, config.retention_ms),
        ("bytes", config.remote_copy_lag_bytes, config.local_retention_bytes,
         config.retention_bytes),
    ):  # fmt: skip
        yield from copy_lag_problems("", unit, lag, whole if local == -2 else local)


def copy_lag_problems(prefix: str, unit: str, lag: int, local: int) -> Iterator[Problem]:
    """Reject a segment that would be copied only after its local retention (KIP-1241).

    ``local`` is the effective local retention; a negative one is unlimited.
    """
    if lag > 0 and 0 <= local < lag:
        rule = f"must be at most {prefix}local.retention.{unit}, which is effectively {local}"
        yield Problem(f"{prefix}remote.copy.lag.{unit}", str(lag), rule)


def group_problems(config: GroupConfig, broker: BrokerConfig) -> Iterator[Problem]:
    """Return everything wrong with a group's settings within the limits of its broker."""
    for name in (
        "consumer.heartbeat.interval.ms",
        "consumer.session.timeout.ms",
        "share.heartbeat.interval.ms",
        "share.session.timeout.ms",
        "share.record.lock.duration.ms",
        "streams.heartbeat.interval.ms",
        "streams.session.timeout.ms",
    ):
        kind, _, what = name.partition(".")
        low = _read(broker, f"group.{kind}.min.{what}")
        high = _read(broker, f"group.{kind}.max.{what}")
        value = getattr(config, name.replace(".", "_"))
        if value < low:
            rule = f"must be greater than or equal to group.{kind}.min.{what}"
            yield Problem(name, str(value), rule)
        if value > high:
            rule = f"must be less than or equal to group.{kind}.max.{what}"
            yield Problem(name, str(value), rule)
    for kind in ("consumer", "share", "streams"):
        heartbeat = getattr(config, f"{kind}_heartbeat_interval_ms")
        if heartbeat >= getattr(config, f"{kind}_session_timeout_ms"):
            key = f"{kind}.heartbeat.interval.ms"
            yield Problem(key, str(heartbeat), f"must be less than {kind}.session.timeout.ms")
    yield from _standbys("", config.streams_num_standby_replicas, broker)


def _standbys(prefix: str, count: int, broker: BrokerConfig) -> Iterator[Problem]:
    most = broker.group_streams_max_standby_replicas
    if count > most:
        rule = f"must be at most group.streams.max.standby.replicas={most}"
        yield Problem(f"{prefix}streams.num.standby.replicas", str(count), rule)
