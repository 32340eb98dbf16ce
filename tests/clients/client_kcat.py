"""kcat, as Debian packages it."""

import json
import shutil
import subprocess
from collections.abc import Sequence

import pytest
from client_contract import (
    GROUPS,
    HEADERS,
    IDEMPOTENCE,
    OFFSETS,
    PARTITIONS,
    PLAIN,
    Record,
    Refused,
    Sending,
    Start,
    Topic,
)
from tests.patience import SECONDS_MAX

SEPARATOR = "\x1f"
END = "\x1e"
CODES = {"Broker: Message size too large": 10}


class KcatClient:
    """No admin, no times of records, and text alone."""

    name = "kcat"
    can = frozenset({GROUPS, HEADERS, IDEMPOTENCE, OFFSETS, PARTITIONS})
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")

    def __init__(self, bootstrap: str) -> None:
        if shutil.which("kcat") is None:
            pytest.skip("kcat is not installed")
        self._bootstrap = bootstrap

    def _run(self, *arguments: str, stdin: bytes = b"") -> str:
        done = subprocess.run(
            ["kcat", "-b", self._bootstrap, *arguments],
            input=stdin,
            capture_output=True,
            timeout=SECONDS_MAX,
        )
        said = done.stderr.decode(errors="replace")
        if done.returncode != 0:
            code = next((code for text, code in CODES.items() if text in said), -1)
            raise Refused(code, said)
        return done.stdout.decode()

    def topics(self) -> set[str]:
        return {each["topic"] for each in json.loads(self._run("-L", "-J"))["topics"]}

    def produce(
        self, topic: str, records: Sequence[Record], how: Sending = PLAIN
    ) -> list[tuple[int, int]]:
        """Send one run of kcat for each partition; it tells no offsets, so they are looked up."""
        replies: dict[int, int] = {}
        for partition in sorted({each.partition for each in records}):
            own = [each for each in records if each.partition == partition]
            self._send(topic, partition, own, how)
            replies[partition] = self.offsets(topic, partition)[1] - len(own)
        found = []
        for each in records:
            found.append((each.partition, replies[each.partition]))
            replies[each.partition] += 1
        return found

    def _send(self, topic: str, partition: int, own: list[Record], how: Sending) -> None:
        headers = [f"-H{name}={(value or b'').decode('latin-1')}" for name, value in own[0].headers]
        keyed = ["-K", SEPARATOR] if own[0].key is not None else []
        lines = [
            (each.key + SEPARATOR.encode() if each.key is not None else b"") + (each.value or b"")
            for each in own
        ]
        self._run(
            *("-P", "-t", topic, "-p", str(partition), "-D", END, *keyed, *headers),
            *("-X", f"acks={how.acks}", "-z", how.codec),
            *("-X", f"enable.idempotence={str(how.idempotent).lower()}"),
            stdin=END.encode().join(lines),
        )

    def consume(self, topic: str, partition: int, start: Start, count: int) -> list[Record]:
        at = "beginning" if start.offset is None else str(start.offset)
        out = self._run("-C", "-J", "-t", topic, "-p", str(partition), "-o", at, "-c", str(count))
        return [self._record(line) for line in out.splitlines()]

    def consume_in_group(self, topic: str, group: str, count: int) -> list[Record]:
        earliest = ("-X", "auto.offset.reset=earliest")
        out = self._run("-J", *earliest, "-c", str(count), "-G", group, topic)
        return [self._record(line) for line in out.splitlines()]

    def _record(self, line: str) -> Record:
        reply = json.loads(line)
        pairs = reply.get("headers", [])
        headers = tuple((pairs[i], pairs[i + 1].encode("latin-1")) for i in range(0, len(pairs), 2))
        key = None if reply["key"] is None else reply["key"].encode()
        value = None if reply["payload"] is None else reply["payload"].encode()
        return Record(value, key, headers, reply["ts"], reply["partition"], reply["offset"])

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """Ask with kcat's query for the beginning (-2) and the end (-1)."""
        found = [
            self._run("-Q", "-t", f"{topic}:{partition}:{special}").rsplit("offset", 1)[1]
            for special in (-2, -1)
        ]
        return int(found[0]), int(found[1])

    def create_topic(self, topic: Topic) -> None:
        raise NotImplementedError

    def delete_topic(self, name: str) -> None:
        raise NotImplementedError

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        raise NotImplementedError

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        raise NotImplementedError

    def config(self, topic: str) -> dict[str, str]:
        raise NotImplementedError

    def set_config(self, topic: str, key: str, value: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass
