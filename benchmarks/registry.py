"""The schema registry: look-ups by id, the load of its topic, and the memory it takes.

Look-ups are counted per second of the node's own CPU time, that is on one core, whatever else the
machine does; the client keeps several connections busy. The load is that of the records of
`_schemas`, as a node replays them at its start.
"""

import http.client
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.report import Row, render, seconds
from ottla.registry.rules.entities import StoredSchema
from ottla.registry.rules.records import SchemaRecord, decode_record, encode_record
from ottla.registry.rules.state import RegistryState
from ottla.testing.cluster import Cluster, run_cluster

AREA = "registry"
LOOKUPS_PER_S_MIN = 5_000
CONNECTIONS = 8
LOOKUPS = 4_000
ROUNDS = 5
SCHEMAS = 10_000
LOAD_S_MAX = 2.0
MEMORY_MAX = 20e6
SECONDS_MAX = 60
TICKS = os.sysconf("SC_CLK_TCK")
FIELDS = [{"name": f"field_{number}", "type": "string"} for number in range(10)]
REQUEST = (
    b"GET /schemas/ids/1 HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\n"
    b"Accept: application/vnd.schemaregistry.v1+json\r\nAccept-Encoding: gzip\r\n\r\n"
)


def run() -> Iterator[Row]:
    """Yield the rows."""
    yield _load()
    with run_cluster(1, processes=True) as cluster:
        without = _rss(cluster)
    with run_cluster(1, processes=True, schema_registry=True) as cluster:
        _register(cluster)
        yield _lookups(cluster)
        added = _rss(cluster) - without
    yield Row(
        AREA,
        "memory (RSS) that a registry adds to a node, after these look-ups",
        f"{added / 1e6:.1f} MB",
        f"{MEMORY_MAX / 1e6:.0f} MB",
        added / MEMORY_MAX,
        "at most 1.0",
        added <= MEMORY_MAX,
    )


def _load() -> Row:
    records = []
    for number in range(1, SCHEMAS + 1):
        name = f"Record{number}"
        text = json.dumps({"type": "record", "name": name, "fields": FIELDS})
        schema = StoredSchema(f"subject-{number}", 1, number, text)
        records.append(encode_record(SchemaRecord(schema.subject, 1, schema)))

    def load() -> None:
        state = RegistryState()
        for key, value in records:
            record = decode_record(key, value)
            assert record is not None
            state.replay(record)

    taken = seconds(load)
    return Row(
        AREA,
        f"{SCHEMAS:,} schemas replayed",
        f"{taken:.2f} s",
        f"{LOAD_S_MAX:.0f} s",
        taken / LOAD_S_MAX,
        "at most 1.0",
        taken <= LOAD_S_MAX,
    )


def _lookups(cluster: Cluster) -> Row:
    address = _address(cluster)
    connections = [socket.create_connection(address, SECONDS_MAX) for _ in range(CONNECTIONS)]
    try:
        _send(connections, LOOKUPS // 4)  # warms up
        rates = []
        for _ in range(ROUNDS):
            before = _cpu_seconds(cluster)
            _send(connections, LOOKUPS)
            rates.append(LOOKUPS / (_cpu_seconds(cluster) - before))
    finally:
        for connection in connections:
            connection.close()
    rate = median(rates)
    return Row(
        AREA,
        f"look-ups by id over {CONNECTIONS} connections",
        f"{rate:,.0f} per s of CPU",
        f"{LOOKUPS_PER_S_MIN:,} per s",
        rate / LOOKUPS_PER_S_MIN,
        "at least 1.0",
        rate >= LOOKUPS_PER_S_MIN,
    )


def _send(connections: list[socket.socket], count: int) -> None:
    for _ in range(count // len(connections)):
        for connection in connections:
            connection.sendall(REQUEST)
        for connection in connections:
            _receive(connection)


def _receive(connection: socket.socket) -> None:
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65_536)
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    lines = (line.partition(b":") for line in head.lower().split(b"\r\n"))
    length = next(int(value) for name, _, value in lines if name == b"content-length")
    while len(body) < length:
        body += connection.recv(65_536)


def _register(cluster: Cluster) -> None:
    schema = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})
    connection = http.client.HTTPConnection(*_address(cluster), timeout=SECONDS_MAX)
    body, headers = json.dumps({"schema": schema}), {"Content-Type": "application/json"}
    connection.request("POST", "/subjects/orders-value/versions", body, headers)
    with connection.getresponse() as reply:
        assert json.loads(reply.read())["id"] == 1
    connection.close()


def _address(cluster: Cluster) -> tuple[str, int]:
    host, _, port = cluster.schema_registry_url.removeprefix("http://").rpartition(":")
    return host, int(port)


def _cpu_seconds(cluster: Cluster) -> float:
    fields = Path(f"/proc/{cluster.process_id(1)}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _rss(cluster: Cluster) -> float:
    lines = Path(f"/proc/{cluster.process_id(1)}/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


if __name__ == "__main__":
    print(render(list(run())))
