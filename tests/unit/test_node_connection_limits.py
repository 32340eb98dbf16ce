"""Kafka's keys about connections, as the servers of a node get them."""

import pytest

from ottla.config.loading import Loaded, load
from ottla.config.values import BadValue
from ottla.metadata.image import EMPTY, Image
from ottla.metadata.replay import replay_all
from ottla.node.security.connection_limits import (
    ip_overrides,
    limits_of,
    request_memory_max,
    server_settings,
    tcp_settings,
)
from ottla.protocol.internal.metadata_cluster import FeatureLevelRecord
from ottla.protocol.internal.metadata_topics import (
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
)


def loaded(*extra: str) -> Loaded:
    return load(
        "process.roles=broker,controller\nnode.id=1\n"
        "listeners=CLIENT://:9092,PEERS://:9094,CONTROLLER://127.0.0.1:9093\n"
        "advertised.listeners=CLIENT://h:9092,PEERS://h:9094\n"
        "inter.broker.listener.name=PEERS\ncontroller.listener.names=CONTROLLER\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:9093\n"
        "listener.security.protocol.map=CLIENT:PLAINTEXT,PEERS:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        + "\n".join(extra)
    )


def image(*records: object) -> Image:
    return replay_all(EMPTY, [FeatureLevelRecord("metadata.version", 29), *records])  # type: ignore[list-item]


def test_default_settings_have_no_limits() -> None:
    limits = limits_of(loaded())
    assert (limits.connections_max, limits.per_ip_max, limits.rate_max) == (None, None, None)
    assert limits.per_listener_max == {} and limits.rate_of_listener("CLIENT") is None
    assert limits.rate_of_ip("10.0.0.1") is None


def test_listener_can_have_its_own_limits() -> None:
    limits = limits_of(
        loaded(
            "max.connections=100",
            "max.connection.creation.rate=50",
            "listener.name.client.max.connections=7",
            "listener.name.client.max.connection.creation.rate=3",
        )
    )
    assert (limits.connections_max, limits.rate_max) == (100, 50)
    assert limits.per_listener_max == {"CLIENT": 7}
    assert limits.rate_of_listener("CLIENT") == 3
    assert limits.rate_of_listener("PEERS") is None


def test_listeners_between_nodes_are_protected() -> None:
    assert limits_of(loaded()).protected == {"PEERS", "CONTROLLER"}


def test_dynamic_limits_override_the_file_and_broker_limits_the_default() -> None:
    file = loaded("max.connections.per.ip=5")
    all_brokers = ConfigRecord(4, "", "max.connections.per.ip", "6")
    this_one = ConfigRecord(4, "1", "max.connections.per.ip", "7")
    other = ConfigRecord(4, "2", "max.connections.per.ip", "8")
    assert limits_of(file, image(other)).per_ip_max == 5
    assert limits_of(file, image(all_brokers, other)).per_ip_max == 6
    assert limits_of(file, image(all_brokers, this_one)).per_ip_max == 7


def quota(ip: str | None, rate: float) -> ClientQuotaRecord:
    return ClientQuotaRecord([EntityData("ip", ip)], "connection_creation_rate", rate)


def test_address_has_its_own_rate_or_the_default_rate() -> None:
    limits = limits_of(loaded(), image(quota("10.0.0.1", 4.0), quota(None, 9.0)))
    assert limits.rate_of_ip("10.0.0.1") == 4
    assert limits.rate_of_ip("10.0.0.2") == 9


def test_quota_of_an_address_counts_in_every_spelling() -> None:
    limits = limits_of(loaded(), image(quota("::1", 4.0), quota("0:0:0:0:0:0:0:1", 9.0)))
    assert limits.rate_of_ip("0:0:0:0:0:0:0:1") == 4  # the smaller of two
    limits = limits_of(loaded(), image(quota("::ffff:10.0.0.1", 7.0)))
    assert limits.rate_of_ip("10.0.0.1") == 7


def test_overrides_are_normalized_addresses() -> None:
    text = "10.0.0.1:3, [::1]:4,::ffff:10.0.0.2:5"
    assert ip_overrides(text) == {"10.0.0.1": 3, "0:0:0:0:0:0:0:1": 4, "10.0.0.2": 5}
    assert ip_overrides("") == {}
    for bad in ("10.0.0.1", "10.0.0.1:x", ":3", "a:-1"):
        with pytest.raises(BadValue):
            ip_overrides(bad)


def test_sizes_and_timeouts_are_passed_to_the_server() -> None:
    file = loaded(
        "socket.request.max.bytes=5000",
        "connections.max.idle.ms=777",
        "queued.max.request.bytes=9000",
        "socket.listen.backlog.size=11",
        "socket.send.buffer.bytes=4096",
    )
    found = server_settings(file)
    assert found.connection.frame_bytes_max == 5000 and found.deadlines.idle_ms == 777
    assert request_memory_max(file) == 9000 and request_memory_max(loaded()) is None
    tcp = tcp_settings(file)
    assert (tcp.backlog, tcp.send_buffer, tcp.receive_buffer) == (11, 4096, None)
