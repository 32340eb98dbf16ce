"""Clients in other languages: a small program each, one JSON request and one reply per line.

    {"op": "consume", "topic": "t", ...}  ->  {"result": [...]}  or  {"code": 10, "text": "..."}

Bytes are base64. ``code`` is Kafka's error code; without one the program failed.
"""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from client_contract import (
    CODECS,
    CONSUMER_GROUPS,
    EVERYTHING,
    NULL_HEADERS,
    PLAIN,
    TRANSACTIONS,
    Record,
    Refused,
    Sending,
    Start,
    Topic,
)
from tests.patience import SECONDS_MAX

from kafka_jars import classpath

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NODE_MODULES = ROOT / "build" / "npm"
PACKAGES = (
    "kafkajs@2.2.4",
    "kafkajs-snappy@1.1.0",
    "kafkajs-lz4@1.2.1",
    "@platformatic/kafka@2.12.1",
)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


class DriverClient:
    """Asks a program that speaks for a client library."""

    name = "?"

    def __init__(self, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the program
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, **(environment or {})},
        )

    def _ask(self, op: str, **arguments: object) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"{self.name} ended: {self._said()}"
        reply = json.loads(line)
        if "result" in reply:
            return reply["result"]
        if reply.get("code") is not None:
            raise Refused(reply["code"], reply.get("text", ""))
        raise AssertionError(f"{self.name} {op}: {reply.get('text')}")

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-3000:]

    def create_topic(self, topic: Topic) -> None:
        self._ask(
            "create_topic", topic=topic.name, partitions=topic.partitions, config=topic.config
        )

    def delete_topic(self, name: str) -> None:
        self._ask("delete_topic", topic=name)

    def topics(self) -> set[str]:
        return set(self._ask("topics"))

    def produce(
        self, topic: str, records: Sequence[Record], how: Sending = PLAIN
    ) -> list[tuple[int, int]]:
        sent = [
            {
                "key": _text(each.key),
                "value": _text(each.value),
                "headers": [[name, _text(value)] for name, value in each.headers],
                "timestamp": each.timestamp,
                "partition": each.partition,
            }
            for each in records
        ]
        replies = self._ask(
            "produce",
            topic=topic,
            records=sent,
            codec=how.codec,
            acks=how.acks,
            idempotent=how.idempotent,
        )
        return [(int(partition), int(offset)) for partition, offset in replies]

    def consume(self, topic: str, partition: int, start: Start, count: int) -> list[Record]:
        return _records(
            self._ask(
                "consume",
                topic=topic,
                partition=partition,
                offset=start.offset,
                timestamp=start.timestamp,
                count=count,
            )
        )

    def consume_in_consumer_group(self, topic: str, group: str, count: int) -> list[Record]:
        asked = {"topic": topic, "group": group, "count": count}
        return _records(self._ask("consume_in_consumer_group", **asked))

    def transact(
        self, topic: str, transactional_id: str, records: Sequence[Record], *, commit: bool
    ) -> None:
        values = [{"value": _text(each.value), "partition": each.partition} for each in records]
        asked = {"topic": topic, "id": transactional_id, "records": values, "commit": commit}
        self._ask("transact", **asked)

    def consume_committed(self, topic: str, partition: int, count: int) -> list[Record]:
        asked = {"topic": topic, "partition": partition, "count": count}
        return _records(self._ask("consume_committed", **asked))

    def consume_in_group(self, topic: str, group: str, count: int) -> list[Record]:
        return _records(self._ask("consume_in_group", topic=topic, group=group, count=count))

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        first, last = self._ask("offsets", topic=topic, partition=partition)
        return int(first), int(last)

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        return int(self._ask("offset_at", topic=topic, partition=partition, timestamp=timestamp))

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        return int(self._ask("delete_records", topic=topic, partition=partition, offset=offset))

    def config(self, topic: str) -> dict[str, str]:
        found: dict[str, str] = self._ask("config", topic=topic)
        return found

    def set_config(self, topic: str, key: str, value: str) -> None:
        self._ask("set_config", topic=topic, key=key, value=value)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


def _records(rows: Sequence[dict[str, Any]]) -> list[Record]:
    return [
        Record(
            _bytes(row["value"]),
            _bytes(row["key"]),
            tuple((name, _bytes(value)) for name, value in row["headers"]),
            int(row["timestamp"]),
            int(row["partition"]),
            int(row["offset"]),
        )
        for row in rows
    ]


def node_modules() -> str:
    """Fetch the npm packages once; skip with a reason where that cannot be."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    if not all((NODE_MODULES / "node_modules" / _bare(name)).exists() for name in PACKAGES):
        NODE_MODULES.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--silent", *PACKAGES]
        done = subprocess.run(command, cwd=NODE_MODULES, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"npm could not fetch the packages: {done.stderr[-300:]}")
    return str(NODE_MODULES)


def _bare(package: str) -> str:
    return package.rpartition("@")[0]


class _NodeClient(DriverClient):
    script = "?"

    def __init__(self, bootstrap: str) -> None:
        home = node_modules()
        # Imports of a module are looked up from where it stands: beside the packages.
        script = Path(home) / self.script
        script.write_text((HERE / "drivers" / self.script).read_text())
        shared = Path(home) / "lines.mjs"
        shared.write_text((HERE / "drivers" / "lines.mjs").read_text())
        quiet = {"KAFKAJS_NO_PARTITIONER_WARNING": "1", "NODE_NO_WARNINGS": "1"}
        super().__init__(["node", str(script), bootstrap], quiet)


class KafkaJsClient(_NodeClient):
    name = "kafkajs"
    script = "kafkajs.mjs"
    can = EVERYTHING - {NULL_HEADERS} | {TRANSACTIONS}
    codecs = ("none", "gzip", "snappy", "lz4")
    reads_in_groups = True


class PlatformaticClient(_NodeClient):
    name = "@platformatic/kafka"
    script = "platformatic.mjs"
    can = EVERYTHING
    codecs = ("none", "gzip", "snappy", "lz4")
    reads_in_groups = True


class JavaClient(DriverClient):
    name = "Apache Kafka's Java client"
    can = EVERYTHING | {TRANSACTIONS, CONSUMER_GROUPS}
    codecs = CODECS

    def __init__(self, bootstrap: str) -> None:
        source = str(HERE / "drivers" / "JavaClient.java")
        super().__init__(["java", "-Xmx256m", "-cp", classpath(), source, bootstrap])
