"""A cluster with something to see, and a browser that walks the pages of its console.

python -m tests.conformance.console_walk docs/images    writes the pictures of docs/console.md
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.patience import SECONDS_MAX

sys.path.insert(0, str(Path(__file__).parents[1] / "wire"))
from console_node import RunningConsole

from ottla.testing.cluster import Cluster, run_cluster

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PAGES = {
    "overview": "/",
    "topics": "/topics",
    "topic": "/topics/orders",
    "messages": "/topics/orders/messages?limit=20",
    "message": "/topics/orders/messages/0/3",
    "hostile": "/topics/greetings/messages",
    "searches": "/searches",
    "groups": "/groups",
    "group": "/groups/billing",
    "letters": "/letters",
    "letter": "/letters/dlq.orders",
    "schemas": "/schemas",
    "subject": "/schemas/orders-value",
    "transactions": "/transactions",
    "security": "/security",
    "brokers": "/brokers",
    "broker": "/brokers/1",
    "api": "/api",
}
SHOWN = ("overview", "messages", "group", "letter")
"""The pages in docs/console.md."""
NAMES = ("lars", "franz", "ottla", "milena", "max")


def fill(cluster: Cluster, console: RunningConsole) -> None:
    """Write orders, dead letters, offsets of groups, and a subject with two versions."""
    config = {"bootstrap.servers": cluster.bootstrap}
    admin = AdminClient(config)
    topics = [NewTopic("orders", 6, 1), NewTopic("greetings", 1, 1), NewTopic("dlq.orders", 1, 1)]
    for done in admin.create_topics(topics).values():
        done.result(SECONDS_MAX)
    producer = Producer(config)
    for number in range(600):
        name = NAMES[number % len(NAMES)]
        order = {"id": number, "customer": name, "total": round(number * 1.37, 2)}
        headers = [("trace", f"t-{number}".encode())]
        producer.produce("orders", json.dumps(order), name, number % 6, headers=headers)
    for text in ("good morning", "<script>alert(1)</script>", "\u202egnp.exe", "שלום"):
        producer.produce("greetings", text, "lars")
    producer.produce("greetings", b"\x00\x01\xff\xfe", b"\xff")
    for number in range(6):
        reason = b"field total is negative" if number % 3 else b"cannot parse the value"
        producer.produce(
            "dlq.orders",
            json.dumps({"id": number, "total": -1}),
            f"k{number}",
            headers=[
                ("__dlq.errors.topic", b"orders"),
                ("__dlq.errors.partition", b"%d" % number),
                ("__dlq.errors.offset", b"7"),
                ("__dlq.errors.group", b"billing"),
                ("__dlq.errors.message", reason),
            ],
        )
    assert producer.flush(SECONDS_MAX) == 0
    consumer = Consumer({**config, "group.id": "billing"})
    offsets = [TopicPartition("orders", number, 60 + 5 * number) for number in range(6)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    for field in ({}, {"name": "note", "type": "string", "default": ""}):
        if field:
            schema["fields"].append(field)
        body = {"schema": json.dumps(schema), "execute": True}
        console.api("/schemas/orders-value", body)


@contextmanager
def filled_console() -> Iterator[tuple[Cluster, RunningConsole]]:
    """Run a node with its console, and fill it."""
    with run_cluster(1, schema_registry=True) as cluster:
        console = RunningConsole(cluster.bootstrap, registry=cluster.schema_registry_url)
        try:
            fill(cluster, console)
            yield cluster, console
        finally:
            console.stop()


@contextmanager
def browser() -> Iterator[Any]:
    """Run chromium with a fresh profile."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as profile:
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path=str(CHROMIUM), args=ARGUMENTS
        )
        yield context
        context.close()


def main(folder: Path) -> None:
    """Write the screenshots of the documentation."""
    folder.mkdir(parents=True, exist_ok=True)
    with filled_console() as (_, console), browser() as context:
        page = context.new_page()
        page.set_viewport_size({"width": 1100, "height": 640})
        for name in SHOWN:
            page.emulate_media(color_scheme="dark" if name == "messages" else "light")
            page.goto(console.url + PAGES[name])
            page.screenshot(path=str(folder / f"console-{name}.png"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
