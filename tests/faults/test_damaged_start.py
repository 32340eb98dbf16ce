"""Every file that a start reads, damaged in every way: recovered, or refused in one line."""

import asyncio
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.patience import SECONDS_MAX

from ottla.config.loading import Loaded, load
from ottla.node.directories.format_plan import FormatOptions, Quorum, plan_format
from ottla.node.directories.formatting import format_node
from ottla.node.directories.start_errors import START_FAULTS, start_error
from ottla.node.handle import Node, start_node
from ottla.node.ports import system_ports
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset, TopicPartition
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.ports import File, OpenMode
from ottla.runtime.randomness import SystemRandom
from ottla.storage.directory.log_dir import LogDirPorts, open_directories
from ottla.storage.log.log_config import LogConfig

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
RECORDS = 5
META = "__cluster_metadata-0"
KINDS = ("empty", "garbage", "truncated", "unreadable", "directory")
NEXT_STEPS = ("start again", "restore", "Restore", "--rejoin-quorum", "format", "Stop that process")

# By file: the outcome, in the order of `KINDS`. "starts": with all records; "loses": with
# fewer, and it is reported; "refuses": in one line that names the file and the next step.
S, L, R = "starts", "loses", "refuses"
TABLE: dict[str, tuple[str, str, str, str, str]] = {
    "meta.properties": (R, R, R, R, R),
    ".lock": (S, S, S, R, R),
    ".kafka_cleanshutdown": (S, S, S, R, R),
    "incarnation_id": (S, S, S, R, R),
    "bootstrap.checkpoint": (S, S, S, R, R),
    "recovery-point-offset-checkpoint": (S, S, S, R, R),
    "replication-offset-checkpoint": (S, S, S, R, R),
    "log-start-offset-checkpoint": (S, S, S, R, R),
    "cleaner-offset-checkpoint": (S, S, S, R, R),
    f"{META}/quorum-state": (R, R, R, R, R),
    f"{META}/recovery-point": (S, S, S, R, R),
    f"{META}/00000000000000000000.log": (R, R, R, R, R),
    f"{META}/00000000000000000000.index": (S, S, S, R, R),
    f"{META}/00000000000000000000-0000000000.checkpoint": (R, R, R, R, R),
    "t-0/partition.metadata": (S, S, S, R, R),
    "t-0/leader-epoch-checkpoint": (S, S, S, R, R),
    "t-0/00000000000000000000.log": (L, L, L, R, R),
    "t-0/00000000000000000000.index": (S, S, S, S, R),
    "t-0/00000000000000000005.snapshot": (S, S, S, R, R),
    "t-0/00000000000000000000.log.swap": (S, S, S, R, R),
    "t-0/00000000000000000000.log.cleaned": (S, S, S, S, R),
    "t-0/00000000000000000000.log.deleted": (S, S, S, S, R),
}
CASES = [
    (name, kind, outcome)
    for name, outcomes in TABLE.items()
    for kind, outcome in zip(KINDS, outcomes, strict=True)
]


def settings(data: Path) -> Loaded:
    return load(text(data))


def text(data: Path) -> str:
    return (
        "process.roles=broker,controller\nnode.id=1\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:1\n"
        "controller.listener.names=CONTROLLER\n"
        f"log.dirs={data}\nbroker.heartbeat.interval.ms=200\n"
        # A node without its incarnation id waits until the session of the old one has expired.
        "broker.session.timeout.ms=2000\n"
    )


class Unreadable(RealDisk):
    """A disk on which one file is unreadable; root may read everything."""

    def __init__(self, path: Path) -> None:
        self._denied = str(path)

    def _check(self, path: str) -> None:
        if path == self._denied:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    def open(self, path: str, mode: OpenMode) -> File:
        self._check(path)
        return super().open(path, mode)

    def read(self, path: str) -> bytes:
        self._check(path)
        return super().read(path)

    def lock(self, path: str):  # type: ignore[no-untyped-def]
        self._check(path)
        return super().lock(path)


async def make(data: Path) -> None:
    loaded, random = settings(data), SystemRandom()
    options = FormatOptions(cluster_id=CLUSTER, quorum=Quorum(is_standalone=True))
    format_node(RealDisk(), random, SystemClock().now(), plan_format(loaded, options, random))
    node = await Node.start(loaded)
    try:
        await node.wait_image(lambda image: image.cluster.is_unfenced(node.node_id))
        await create_topic(node)
        assert node.partitions is not None
        log = node.partitions.find("t", 0).log
        for number in range(RECORDS):
            batch = build_batch([Record(Offset(0), Millis(1), b"k", b"%d" % number)])
            log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now=Millis(1))
        log.set_high_watermark(Offset(RECORDS))
    finally:
        await node.shutdown()


async def create_topic(node: Node) -> None:
    from ottla.client.connection import Connection
    from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
    from ottla.runtime.network import TcpNetwork

    assert node.listen_addr is not None
    connection = await Connection.open(TcpNetwork(), node.listen_addr)
    await connection.send(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 5000), timeout_ms=5000)
    await connection.close()
    await node.wait_image(lambda image: image.topics.named("t") is not None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a node that was shut down in order."""
    data = tmp_path_factory.mktemp("whole") / "data"
    asyncio.run(make(data))
    return data


@pytest.fixture
def data(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "data")
    return tmp_path / "data"


def damage(path: Path, kind: str) -> None:
    before = path.read_bytes() if path.exists() else b"written before the crash " * 4
    match kind:
        case "empty":
            path.write_bytes(b"")
        case "garbage":
            path.write_bytes(b"garbage! " * 40)
        case "truncated":
            path.write_bytes(before[: len(before) * 2 // 3])
        case "unreadable":
            path.write_bytes(before)
        case "directory":
            path.unlink(missing_ok=True)
            path.mkdir()
            (path / "file").write_text("in the way")


async def start(data: Path, disk: RealDisk) -> int:
    """Start and stop a node; return the end offset of the topic's log."""
    node = await start_node(settings(data), replace(system_ports(), disk=disk))
    try:
        return node.local_log_end_offset("t", 0) or 0
    finally:
        await node.shutdown()


@pytest.mark.parametrize(("name", "kind", "outcome"), CASES)
def test_damaged_file_is_recovered_or_refused_in_one_line(
    data: Path, name: str, kind: str, outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = data / name
    damage(path, kind)
    disk = Unreadable(path) if kind == "unreadable" else RealDisk()
    refusal = None
    try:
        end = asyncio.run(start(data, disk))
    except START_FAULTS as error:
        refusal = start_error(error)
    errors = [each for each in caplog.records if "recovery lost records" in each.getMessage()]
    if outcome == R:
        assert refusal is not None
        check_line(refusal, path)
    else:
        assert refusal is None
        assert (end == RECORDS) == (outcome == S)
        assert bool(errors) == (outcome == L)
        if errors:
            assert str(path) in errors[0].getMessage()


def check_line(line: str, path: Path) -> None:
    assert "\n" not in line
    assert str(path) in line, line
    assert any(step in line for step in NEXT_STEPS), line
    for word in ("Traceback", "Error:", "Fault", "Errno", "Refused:", "Exception"):
        assert word not in line, line


def test_damaged_metadata_log_without_snapshot_is_refused(data: Path) -> None:
    """Damage to the metadata log, byte by byte in the middle, and the options that repair it."""
    path = data / META / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x01
    path.write_bytes(content)
    config = data.parent / "server.properties"
    config.write_text(text(data))

    refused = serve(config)
    assert refused.returncode == 1
    (line,) = refused.stderr.splitlines()[-1:]
    check_line(line, path)
    assert "Traceback" not in refused.stderr
    offset = line.rpartition("--truncate-metadata-at ")[2].rstrip("`.")

    alone = serve(config, "--rejoin-quorum")
    assert alone.returncode == 1
    assert "only voter" in alone.stderr
    wrong = serve(config, "--truncate-metadata-at", str(int(offset) + 1))
    assert wrong.returncode == 1
    assert f"must be {offset}" in wrong.stderr

    cut = serve(config, "--truncate-metadata-at", offset, "--stop-at-end-of-input")
    assert cut.returncode == 0, cut.stderr
    assert (data / META / "00000000000000000000.log.damaged-1").exists()


def serve(config: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla.cli.main", "server", str(config), *options]
    return subprocess.run(
        command, capture_output=True, text=True, input="", timeout=SECONDS_MAX, check=False
    )


@pytest.mark.parametrize("kind", ["missing", "directory", "garbage"])
def test_settings_file_that_cannot_be_used_is_refused_in_lines_that_name_it(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "server.properties"
    if kind == "directory":
        path.mkdir()
    elif kind == "garbage":
        path.write_bytes(b"\xff\xfe\x00garbage")
    done = serve(path)
    assert done.returncode == 1
    assert all(line.startswith(str(path)) for line in done.stderr.splitlines())
    assert "Traceback" not in done.stderr


def test_directory_in_use_is_refused_with_the_next_step(data: Path) -> None:
    disk = RealDisk()
    ports = LogDirPorts(disk, SystemClock(), SystemRandom())
    opened = open_directories(ports, [str(data)], node_id=NodeId(1))
    try:
        with pytest.raises(START_FAULTS) as refused:
            asyncio.run(start(data, disk))
    finally:
        opened.online[0].open_all(lambda _: LogConfig())
        opened.online[0].close()
    assert "Stop that process" in start_error(refused.value)  # type: ignore[arg-type]
    assert TopicPartition("t", 0) in opened.online[0].logs
