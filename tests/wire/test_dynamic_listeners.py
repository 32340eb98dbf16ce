"""Listeners that are added to and removed from a running broker."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from one_node import Line, OneNode, format_one, settings
from test_dynamic_configs import BROKER, Wire
from tests.free_ports import free_ports

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from ottla.runtime.ports import Address

STATIC = "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
MAP = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OTHER:PLAINTEXT,SECURE:SSL"


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    found = Wire(tmp_path)
    try:
        yield found
    finally:
        found.one.stop()


def open_listeners(wire: Wire) -> dict[str, Address]:
    broker = wire.node._parts.broker
    assert broker is not None
    return dict(broker.listener.addresses)


API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", ""))


def answers(address: Address) -> bool:
    with Line(address) as line:
        line.send(API_VERSIONS)
        return line.frame()[:4] == b"\0\0\0\x01"


def test_added_listener_serves_and_removed_one_is_closed_with_its_connections(wire: Wire) -> None:
    at = Address("127.0.0.1", free_ports(1)[0])
    assert wire.alter("1", ("listeners", f"{STATIC},OTHER://{at}")) == (ErrorCode.NONE, None)
    reply = wire.describe("1", "listeners")
    assert (reply.value, reply.config_source) == (f"{STATIC},OTHER://{at}", 2)
    wire.wait_for(lambda: "OTHER" in open_listeners(wire))
    assert answers(at)
    # The registration stays as it is until the next start, as in Kafka.
    assert list(wire.node.image.cluster.brokers[wire.node.node_id].listeners) == ["PLAINTEXT"]
    with Line(at) as line:
        line.send(API_VERSIONS)
        line.frame()
        assert wire.alter("1", ("listeners", None)) == (ErrorCode.NONE, None)
        assert line.is_closed()
    wire.wait_for(lambda: "OTHER" not in open_listeners(wire))
    with pytest.raises(ConnectionRefusedError):
        Line(at)
    assert answers(wire.one.address)


def test_listener_of_the_file_can_be_removed_and_opened_again(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    listeners = f"{STATIC},OTHER://127.0.0.1:{port}"
    wire = Wire(tmp_path, listeners)
    at = Address("127.0.0.1", port)
    try:
        assert answers(at)
        assert wire.alter("1", ("listeners", STATIC)) == (ErrorCode.NONE, None)
        wire.wait_for(lambda: "OTHER" not in open_listeners(wire))
        with pytest.raises(ConnectionRefusedError):
            Line(at)
        assert wire.alter("1", ("listeners", None)) == (ErrorCode.NONE, None)
        wire.wait_for(lambda: "OTHER" in open_listeners(wire))
        assert answers(at)
    finally:
        wire.one.stop()


def test_added_listener_is_opened_again_after_a_restart(tmp_path: Path) -> None:
    loaded = format_one(settings(tmp_path))
    port = free_ports(1)[0]
    wire = Wire(tmp_path, loaded=loaded)
    assert wire.alter("1", ("listeners", f"{STATIC},OTHER://127.0.0.1:{port}"))[0] is ErrorCode.NONE
    wire.one.stop()
    one = OneNode(loaded)
    try:
        assert answers(Address("127.0.0.1", port))
    finally:
        one.stop()


def test_restart_goes_on_without_a_listener_whose_port_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = format_one(settings(tmp_path))
    port = free_ports(1)[0]
    wire = Wire(tmp_path, loaded=loaded)
    assert wire.alter("1", ("listeners", f"{STATIC},OTHER://127.0.0.1:{port}"))[0] is ErrorCode.NONE
    wire.one.stop()
    with socket.create_server(("127.0.0.1", port)):
        one = OneNode(loaded)
        try:
            assert answers(one.address)
            assert "listener not opened name=OTHER" in caplog.text
        finally:
            one.stop()


@contextlib.contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as held:
        yield held.getsockname()[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"listeners": "x"},
        {"listeners": f"{STATIC},NEW://127.0.0.1:0"},
        {"listeners": f"{STATIC},SECURE://127.0.0.1:0", "listener.security.protocol.map": MAP},
        {"listeners": "PLAINTEXT://127.0.0.1:0"},
        {"listeners": "OTHER://127.0.0.1:0,CONTROLLER://127.0.0.1:0"},
        {"listeners": "PLAINTEXT://127.0.0.1:29092,CONTROLLER://127.0.0.1:0"},
        {"listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:29093"},
        {"listener.security.protocol.map": MAP.replace("PLAINTEXT:PLAINTEXT", "PLAINTEXT:SSL")},
        {"listener.security.protocol.map": "x"},
    ],
    ids=str,
)
def test_change_that_cannot_be_applied_is_refused(
    shared_wire: Wire, changes: dict[str, str]
) -> None:
    before = open_listeners(shared_wire)
    code, message = shared_wire.alter("1", *changes.items())
    assert code is ErrorCode.INVALID_REQUEST
    assert message
    assert shared_wire.describe("1", "listeners").config_source == 4
    assert open_listeners(shared_wire) == before


@pytest.fixture(scope="module")
def shared_wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    found = Wire(tmp_path_factory.mktemp("shared"))
    try:
        yield found
    finally:
        found.one.stop()


def test_address_in_use_is_refused(shared_wire: Wire) -> None:
    with taken_port() as port:
        code, message = shared_wire.alter("1", ("listeners", f"{STATIC},OTHER://127.0.0.1:{port}"))
    assert code is ErrorCode.INVALID_REQUEST
    assert "in use" in (message or "")


def test_listeners_belong_to_one_broker(shared_wire: Wire) -> None:
    for key, text in (("listeners", STATIC), ("listener.security.protocol.map", MAP)):
        assert shared_wire.alter("", (key, text))[0] is ErrorCode.INVALID_REQUEST


def test_alter_configs_validates_like_incremental_alter_configs(shared_wire: Wire) -> None:
    def asked(*changes: tuple[str, str], kind: int = BROKER, name: str = "1") -> Any:
        configs = [AlterableConfig(key, text) for key, text in changes]
        request = AlterConfigsRequest([AlterConfigsResource(kind, name, configs)], True)
        answer = shared_wire.send(request).responses[0]
        return ErrorCode(answer.error_code)

    assert asked(("listeners", "x")) is ErrorCode.INVALID_REQUEST
    assert asked(("num.io.threads", "100")) is ErrorCode.INVALID_REQUEST
    assert asked(("num.io.threads", "9")) is ErrorCode.NONE
    assert asked(("num.io.threads", "9"), name="2") is ErrorCode.INVALID_REQUEST
    assert asked(("root", "INFO"), kind=8) is ErrorCode.INVALID_REQUEST
    assert asked(("a", "b"), kind=99) is ErrorCode.INVALID_REQUEST
