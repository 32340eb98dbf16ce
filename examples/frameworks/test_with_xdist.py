"""pytest-xdist: every worker has nodes of its own, on free ports; nothing needs to be shared.

A node for the whole session of a worker is cheapest; names must be unique then.
"""

import uuid

import pytest
from confluent_kafka import Producer

from ottla.testing import Cluster


@pytest.fixture
def topic() -> str:
    """Return a name that no other test uses."""
    return f"orders-{uuid.uuid4()}"


@pytest.mark.parametrize("number", range(4))
def test_order_is_acknowledged(ottla_shared_node: Cluster, topic: str, number: int) -> None:
    """A record is acknowledged."""
    producer = Producer({"bootstrap.servers": ottla_shared_node.bootstrap})
    producer.produce(topic, str(number))
    assert producer.flush(30) == 0
