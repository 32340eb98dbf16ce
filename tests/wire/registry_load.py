"""Threads that register schemas on all nodes of a cluster, and what must hold afterwards."""

import json
import threading
from collections.abc import Callable
from contextlib import ExitStack

from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
from tests.patience import SECONDS_MAX

from ottla.testing.cluster import Cluster


class Registrations:
    """Threads that register the same schemas, each in subjects of its own, on all nodes."""

    def __init__(self, urls: list[str], threads: int) -> None:
        self._urls = urls
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.answered: list[tuple[str, int]] = []
        self._threads = [
            threading.Thread(target=self._register, args=(number,)) for number in range(threads)
        ]

    def __enter__(self) -> "Registrations":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(SECONDS_MAX)

    def wait_more(self, count: int) -> None:
        """Wait until so many more registrations were answered."""
        size = len(self.answered) + count
        wait_for(lambda: len(self.answered) >= size)

    def _register(self, worker: int) -> None:
        settings = {"max.retries": 0, "timeout": 30}
        with ExitStack() as stack:
            clients = [
                stack.enter_context(SchemaRegistryClient({"url": url, **settings}))
                for url in self._urls
            ]
            number = 0
            while not self._stop.is_set():
                name, number = f"R{number}", number + 1
                text = json.dumps({"type": "enum", "name": name, "symbols": ["A"]})
                for client in clients[worker % 3 :] + clients[: worker % 3]:
                    try:
                        schema_id = client.register_schema(
                            f"s-{worker}-{name}", Schema(text, "AVRO")
                        )
                    except Exception:  # the node is down, or does not know the outcome
                        continue
                    with self._lock:
                        self.answered.append((name, schema_id))
                    break


def check_ids(urls: list[str], answered: list[tuple[str, int]]) -> None:
    """Check that each schema has one id, that no id has two, and that every node has them all."""
    ids: dict[str, set[int]] = {}
    for name, schema_id in answered:
        ids.setdefault(name, set()).add(schema_id)
    assert {name: own for name, own in ids.items() if len(own) != 1} == {}
    owners = [min(own) for own in ids.values()]
    assert len(set(owners)) == len(owners)
    for url in urls:
        wait_for(lambda url=url: names_of(url, owners) == list(ids))


def names_of(url: str, ids: list[int]) -> list[str] | None:
    """Return the names of schemas by id; None while a node has not applied all of them."""
    with SchemaRegistryClient({"url": url}) as client:
        try:
            return [json.loads(client.get_schema(number).schema_str)["name"] for number in ids]
        except SchemaRegistryError:
            return None


def wait_for(is_true: Callable[[], bool]) -> None:
    done = threading.Event()
    for _ in range(int(SECONDS_MAX / 0.05)):
        if is_true():
            return
        done.wait(0.05)
    raise AssertionError("waited in vain")


def leader_of_schemas(cluster: Cluster) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    found: list[int] = []

    def is_led() -> bool:
        leader = admin.list_topics("_schemas", timeout=10).topics["_schemas"].partitions[0].leader
        found[:] = [leader]
        return leader in cluster.running

    wait_for(is_led)
    return found[0]
