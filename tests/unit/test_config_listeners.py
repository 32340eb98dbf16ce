"""Addresses and listeners: syntax, names, protocols and their use."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.config.addresses import (
    BadAddress,
    HostPort,
    SecurityProtocol,
    Voter,
    parse_host_port,
    parse_listener,
    parse_protocol_map,
    parse_voter,
)
from ottla.config.loading import Loaded, load
from ottla.config.problems import ConfigError
from ottla.protocol.types import NodeId


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost:9092", "localhost", 9092),
        ("[::1]:9092", "::1", 9092),
        ("[2001:db8::1%eth0]:1", "2001:db8::1%eth0", 1),
        ("2001:db8::1:9092", "2001:db8::1", 9092),
        ("1.2.3.4:0", "1.2.3.4", 0),
        ("a:65535", "a", 65535),
    ],
)
def test_host_and_port_are_parsed(text: str, host: str, port: int) -> None:
    assert parse_host_port(text) == HostPort(host, port)


@pytest.mark.parametrize(
    "text",
    ["", "a", "a:", ":1", "a:65536", "a:-1", "a:1x", "[::1]", "[::1:9", "a b:1", "a:" + "9" * 99],
)
def test_invalid_addresses_are_rejected(text: str) -> None:
    with pytest.raises(BadAddress):
        parse_host_port(text)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["h", "::1", "10.0.0.1"]), st.integers(0, 65535))
def test_address_roundtrips_through_text(host: str, port: int) -> None:
    address = HostPort(host, port)
    assert parse_host_port(str(address)) == address


def test_listener_may_lack_a_host_and_its_name_becomes_upper_case() -> None:
    found = parse_listener("external://:9094")
    assert (found.name, found.address) == ("EXTERNAL", HostPort("", 9094))
    for bad in ("EXTERNAL:9094", "://a:1", "A B://a:1", "A://a"):
        with pytest.raises(BadAddress):
            parse_listener(bad)


def test_voters_are_parsed() -> None:
    assert parse_voter("3@[::1]:9") == Voter(NodeId(3), HostPort("::1", 9))
    for bad in ("a:1", "-1@a:1", "x@a:1", "1@a", "@a:1", "2147483648@a:1"):
        with pytest.raises(BadAddress):
            parse_voter(bad)


def test_protocol_map_is_parsed() -> None:
    assert parse_protocol_map("a:SSL, B:sasl_ssl,") == {
        "A": SecurityProtocol.SSL,
        "B": SecurityProtocol.SASL_SSL,
    }
    for bad in ("A", "A:TLS", ":SSL", "A:SSL,a:SSL"):
        with pytest.raises(BadAddress):
            parse_protocol_map(bad)


def node(roles: str, listeners: str, *lines: str) -> Loaded:
    return load(
        "\n".join(
            [
                "node.id=1",
                f"process.roles={roles}",
                f"listeners={listeners}",
                "controller.listener.names=CTL",
                "controller.quorum.bootstrap.servers=c:9093",
                *lines,
            ]
        )
    )


def problems(roles: str, listeners: str, *lines: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        node(roles, listeners, *lines)
    return [str(problem) for problem in caught.value.problems]


def test_combined_node_has_broker_and_controller_listeners() -> None:
    found = node("broker,controller", "PLAINTEXT://h:1,CTL://h:2").listeners
    data, controller = found.all
    assert (data.name, data.advertised, data.is_controller) == (
        "PLAINTEXT",
        HostPort("h", 1),
        False,
    )
    assert controller.is_controller and controller.protocol is SecurityProtocol.PLAINTEXT
    assert found.inter_broker == "PLAINTEXT"
    assert found.named("ctl") is controller


def test_listener_without_advertised_address_is_not_advertised() -> None:
    found = node(
        "broker,controller",
        "PLAINTEXT://:1,INSIDE://:3,CTL://:2",
        "advertised.listeners=PLAINTEXT://example.org:9",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,CTL:PLAINTEXT",
    ).listeners
    assert [listener.advertised for listener in found.all] == [
        HostPort("example.org", 9),
        None,
        HostPort("", 2),
    ]


def test_broker_knows_the_protocol_of_controller_listeners() -> None:
    found = node("broker", "PLAINTEXT://h:1").listeners
    assert found.protocols["CTL"] is SecurityProtocol.PLAINTEXT
    assert [listener.name for listener in found.all] == ["PLAINTEXT"]


def test_plaintext_default_does_not_apply_beside_a_secured_listener() -> None:
    found = problems(
        "broker,controller", "SSL://h:1,CTL://h:2", "security.inter.broker.protocol=SSL"
    )
    assert found == ["listeners=CTL: must have an entry in listener.security.protocol.map"]


def test_controller_has_no_inter_broker_listener() -> None:
    assert node("controller", "CTL://h:2").listeners.inter_broker is None


@pytest.mark.parametrize(
    ("roles", "listeners", "lines", "problem"),
    [
        ("broker", "PLAINTEXT://h:1,CTL://h:2", [], "must not contain controller listeners"),
        ("controller", "PLAINTEXT://h:1,CTL://h:2", [], "must contain controller listeners only"),
        ("broker,controller", "PLAINTEXT://h:1", [], "must be one of listeners"),
        ("broker", "PLAINTEXT://h:1,plaintext://h:2", [], "must not use a name twice"),
        ("broker,controller", "PLAINTEXT://h:1,CTL://i:1", [], "must not use a port twice"),
        ("broker", "OTHER://h:1", [], "listener.security.protocol.map"),
        ("broker", "nonsense", [], "must be NAME://host:port"),
        ("broker", "PLAINTEXT://0.0.0.0:1", [], "must be a reachable address"),
        ("broker", "PLAINTEXT://h:1", ["advertised.listeners=SSL://h:1"],
         "must be one of listeners"),
        ("broker", "SSL://h:1", ["listener.security.protocol.map=SSL:SSL,CTL:SSL"],
         "must be an advertised listener of this broker: SSL"),
        ("broker", "PLAINTEXT://h:1",
         ["inter.broker.listener.name=PLAINTEXT", "security.inter.broker.protocol=PLAINTEXT"],
         "must not be set together with"),
        ("broker", "PLAINTEXT://h:1", ["listener.security.protocol.map=PLAINTEXT:X"],
         "NAME:PROTOCOL"),
    ],
)  # fmt: skip
def test_inconsistent_listeners_are_rejected(
    roles: str, listeners: str, lines: list[str], problem: str
) -> None:
    assert any(problem in found for found in problems(roles, listeners, *lines))


def test_port_may_be_used_for_ipv4_and_ipv6() -> None:
    lines = ["listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT,CTL:PLAINTEXT"]
    node("broker", "A://1.1.1.1:1,B://[::1]:1", *lines, "inter.broker.listener.name=A")
    node("broker", "A://h:0,B://h:0", *lines, "inter.broker.listener.name=A")
