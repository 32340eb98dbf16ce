"""FastAPI: the application gets its broker by an override. `pip install fastapi httpx aiokafka`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer
from fastapi import FastAPI
from fastapi.testclient import TestClient

from ottla.testing import Cluster


def make_app(bootstrap: str) -> FastAPI:
    """Return the application: POST /orders/NAME sends a record."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            app.state.producer = producer
            yield

    app = FastAPI(lifespan=life)

    @app.post("/orders/{name}")
    async def order(name: str) -> dict[str, int]:
        sent = await app.state.producer.send_and_wait("orders", name.encode())
        return {"offset": sent.offset}

    return app


def test_order_arrives_in_the_topic(ottla_node: Cluster) -> None:
    """What is posted is in the topic."""
    with TestClient(make_app(ottla_node.bootstrap)) as client:
        assert client.post("/orders/tea").json() == {"offset": 0}
    consumer = Consumer(
        {**ottla_node.client_config, "group.id": "test", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert message.value() == b"tea"
