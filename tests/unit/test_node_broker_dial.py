"""To which of a broker's listeners a node goes, a broker or a controller alone."""

import asyncio
from types import SimpleNamespace

import pytest

from ottla.config.loading import load
from ottla.metadata.registrations import Endpoint
from ottla.node.broker.broker_dial import broker_dial
from ottla.node.security.security_port import NoSecurity

CONTROLLER = """
process.roles=controller
node.id=1
listeners=CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:9093
listener.security.protocol.map=CONTROLLER:PLAINTEXT,INNER:PLAINTEXT,PLAINTEXT:PLAINTEXT
"""
BROKER = CONTROLLER.replace("roles=controller", "roles=broker,controller").replace(
    "listeners=", "listeners=INNER://127.0.0.1:9092,"
)


class Network:
    """Notes who is dialled, and reaches nobody."""

    def __init__(self) -> None:
        self.dialled: list[str] = []

    async def dial(self, address, connect):
        self.dialled.append(str(address))
        raise ConnectionRefusedError("nobody there")


def dialled(settings: str, *listeners: str) -> list[str]:
    """Dial broker 2, which has these listeners; return where."""
    endpoints = {name: Endpoint(name.lower(), 1000 + at, 0) for at, name in enumerate(listeners)}
    broker = SimpleNamespace(listeners=endpoints)
    image = SimpleNamespace(cluster=SimpleNamespace(brokers={2: broker}))
    network = Network()
    context = SimpleNamespace(
        loaded=load(settings), ports=SimpleNamespace(network=network), security=NoSecurity()
    )
    with pytest.raises(ConnectionRefusedError):
        asyncio.run(broker_dial(context, lambda: image, "test")(2))
    return network.dialled


def test_broker_dials_the_inter_broker_listener() -> None:
    own = BROKER + "inter.broker.listener.name=INNER\n"
    assert dialled(own, "PLAINTEXT", "INNER") == ["inner:1001"]
    assert dialled(own, "PLAINTEXT") == [], "never to one that is meant for clients"


def test_controller_dials_the_listener_of_its_settings() -> None:
    named = CONTROLLER + "inter.broker.listener.name=INNER\n"
    assert dialled(named, "PLAINTEXT", "INNER") == ["inner:1001"]


def test_controller_without_a_listener_name_dials_the_first_listener() -> None:
    assert dialled(CONTROLLER, "INNER", "OUTER") == ["inner:1000"]
    assert dialled(CONTROLLER, "INNER", "PLAINTEXT") == ["plaintext:1001"]
    assert dialled(CONTROLLER) == []
