"""Every command with a wrong path, without permission, with a full disk and without an output.

Each ends with a sentence on stderr and an exit code, never with a traceback.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer.main

from ottla.cli.app import COMMANDS, app
from ottla.testing import Cluster, run_node

HERE = Path(__file__).parent
LINES_MAX = 12
SECONDS_MAX = 280
NOBODY = 65534

# Commands that read a file.
READ = [
    "up --config {path} --data {new}",
    "produce t {path}",
    "produce t --value-format avro --schema-file {path}",
    "consume t -e --value-format avro --schema-file {path}",
    "consume t -e --key-format avro --key-schema-file {path}",
    "sql 'select 1 from t' --format avro --schema-file t={path}",
    "sql 'select 1 from t' --key-format avro --key-schema-file t={path}",
    "group reset-offsets g --from-file {path}",
    "user create u --password-file {path}",
    "user set-password u --password-file {path}",
    "profile set p --file {path}",
    "pipeline run {path}",
    "pipeline status {path}",
    "pipeline stop {path}",
    "pipeline report {path}",
    "pipeline table {path}",
    "migrate check {path}",
    "mirror run --from {path} --to {path}",
    "mirror status --from {path} --to {path}",
    "mirror switch-over --from {path} --to {path}",
    "tier verify --settings {path}",
    "schema register s {path}",
    "schema check s {path}",
    "log dump {path}",
    "log verify {path}",
    "doctor --data {new} --config {path}",
    "cluster quorum add --config {path}",
    "server {path}",
    "server --nodes 2 {path}",
    "format {path}",
    "format --config {path}",
    "format {settings} --add-scram @{path}",
    "topic list --command-config {path}",
]
# A directory may be what these are for; all bytes may be a record.
READS_DIRECTORIES = ("log dump", "log verify", "pipeline run", "pipeline status", "pipeline stop")
READS_DIRECTORIES += ("pipeline report",)
READS_BYTES = ("produce t {path}",)

# Commands that create files in a directory, or read it.
DIRECTORIES = [
    "up --data {path} --port {port}",
    "up --detach --data {path} --port {port}",
    "up --secure --data {path} --port {port}",
    "up status --data {path}",
    "up stop --data {path}",
    "up logs --data {path}",
    "cert create name --dir {path}",
    "pipeline init {path}/new",
    "pipeline report --state {path}/state --to {new}",
    "pipeline tables --warehouse {new} --state {path} --once",
    "pipeline tables --warehouse {new} --state {path} --status",
    "doctor --data {path}",
    "profile set p a=b",
    "profile list",
]
NEVER_WRITE = ("up status", "up stop", "up logs", "pipeline report", "doctor", "profile list")

# Commands that write a file.
WRITE = [
    "sql 'select 1 as one' --file {path}",
    "group reset-offsets g --to-earliest -t t --export {path}",
]

# Every command, with a result, for faults of the output.
PRINT = [
    "topic list",
    "topic describe t",
    "topic offsets t",
    "topic reassign",
    "topic elect",
    "topic create t --if-not-exists",
    "produce t {line} -o json",
    "consume t -e -J",
    "sql 'select 1 as one'",
    "config get topic t retention.ms",
    "config describe topic t",
    "config set topic t retention.ms=1000000",
    "client-metrics list",
    "cluster info",
    "cluster quorum describe",
    "cluster features describe",
    "group list",
    "group describe g",
    "group lag g",
    "group reset-offsets g --to-earliest -t t",
    "top -c 1",
    "share list",
    "txn list",
    "txn hanging",
    "user list",
    "quota list",
    "logdir list",
    "migrate status",
    "migrate plan",
    "cert create name --dir {new}",
    "profile set p bootstrap.servers=localhost",
    "profile list",
    "up status --data {new}",
    "log dump {segment}",
    "log verify {segment}",
    "pipeline init {new}",
    "pipeline catalog",
    "format {settings}",
    "random-uuid",
    "--version",
    "--help",
    "topic list --help",
]
# Those that print nothing, or nothing but a failure.
QUIET = ("topic reassign", "topic elect", "client-metrics list", "share list", "txn list")
QUIET += ("txn hanging", "migrate plan", "log verify", "user list", "quota list", "profile list")


@dataclass(frozen=True)
class Places:
    """Paths for the cases of one test."""

    root: Path
    bootstrap: str
    data: Path

    def fill(self, text: str, path: Path | str, at: int) -> list[str]:
        import shlex

        return shlex.split(
            text.format(
                path=path,
                new=self.root / f"new-{at}",
                port=19_000 + at,
                settings=self.root / "server.properties",
                line=self.root / "line",
                segment=next((self.data / "__cluster_metadata-0").glob("*.log")),
            )
        )

    def case(self, text: str, path: Path | str, at: int, **more: Any) -> dict[str, Any]:
        environment = {
            "OTTLA_BOOTSTRAP": self.bootstrap,
            "OTTLA_PROFILES": f"{path}/profiles.toml" if "profile" in text else "",
            "COLUMNS": "2000",
            "TERMINAL_WIDTH": "2000",
        }
        return {"words": self.fill(text, path, at), "environment": environment, **more}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A node with a topic that has a record, and a group with an offset."""
    with run_node() as found:
        line = tmp_path_factory.mktemp("line") / "line"
        line.write_text("a line\n")
        words = ["topic create t", f"produce t {line}"]
        words.append("group reset-offsets g --to-earliest -t t --execute")
        environment = {"OTTLA_BOOTSTRAP": found.bootstrap}
        cases = [{"words": each.split(), "environment": environment} for each in words]
        for result in run_all(cases):
            assert result["code"] == 0, result["stderr"]
        yield found


@pytest.fixture
def places(node: Cluster, tmp_path: Path) -> Iterator[Places]:
    (tmp_path / "file").write_text("a line\n")
    (tmp_path / "line").write_text("a line\n")
    (tmp_path / "bytes").write_bytes(bytes(range(256)))
    (tmp_path / "directory").mkdir()
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "private" / "file").write_text("a line\n")
    if os.getuid() == 0:  # root without its capabilities is another user
        os.chown(tmp_path / "private", NOBODY, NOBODY)
    else:
        (tmp_path / "private").chmod(0)
    (tmp_path / "server.properties").write_text(
        "process.roles=broker,controller\nnode.id=1\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:9093\n"
        f"log.dirs={tmp_path / 'logs'}\n"
    )
    yield Places(tmp_path, node.bootstrap, node.data(1))
    (tmp_path / "private").chmod(0o700)


def run_all(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(HERE / "cli_faults_process.py")],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    results: list[dict[str, Any]] = json.loads(done.stdout)
    return results


def complaints(case: dict[str, Any], result: dict[str, Any], says: str) -> str:
    """Return what is wrong with how a command has failed; empty if nothing is."""
    errors, words = result["stderr"], " ".join(case["words"])
    faults = []
    if result["is_late"]:
        faults.append("did not end")
    if result["code"] not in (1, 2):
        faults.append(f"exit code {result['code']}")
    if "Traceback" in errors or "Exception ignored" in errors:
        faults.append("a traceback")
    if len(errors.splitlines()) > LINES_MAX:
        faults.append("a long text")
    if says not in errors + result["stdout"]:
        faults.append(f"does not say {says}")
    if "Errno" in errors:
        faults.append("an errno")
    return f"ottla {words}: {', '.join(faults)}\n{errors[-1500:]}" if faults else ""


def check(cases: list[dict[str, Any]], says: str) -> None:
    found = [complaints(*each, says) for each in zip(cases, run_all(cases), strict=True)]
    wrong = [each for each in found if each]
    assert not wrong, f"{len(wrong)} of {len(cases)}\n\n" + "\n".join(wrong)


def test_every_command_that_takes_a_path_is_in_a_list() -> None:
    listed = " ".join([*READ, *DIRECTORIES, *WRITE])
    root = typer.main.get_command(app)
    for name in COMMANDS:
        command = root.get_command(typer.Context(root), name)
        inner = getattr(command, "commands", None) or {"": command}
        for own, each in inner.items():
            if any("Path" in param.bare_type() for param in each.params):
                assert f"{name} {own}".strip() in listed, f"{name} {own}: add it to a list"


@pytest.mark.parametrize("name", ["missing", "directory"])
def test_file_that_is_none_is_named(places: Places, name: str) -> None:
    path = places.root / name
    chosen = [text for text in READ if name == "missing" or not text.startswith(READS_DIRECTORIES)]
    check([places.case(text, path, at) for at, text in enumerate(chosen)], str(path))


def test_file_of_arbitrary_bytes_is_named(places: Places) -> None:
    path = places.root / "bytes"
    chosen = [text for text in READ if text not in READS_BYTES and "log " not in text]
    check([places.case(text, path, at) for at, text in enumerate(chosen)], str(path))


def test_file_without_permission_is_named(places: Places) -> None:
    path = places.root / "private" / "file"
    check(
        [places.case(text, path, at, is_powerless=True) for at, text in enumerate(READ)], str(path)
    )


def test_file_in_place_of_a_directory_is_named(places: Places) -> None:
    path = places.root / "file"
    check([places.case(text, path, at) for at, text in enumerate(DIRECTORIES)], str(path))


def test_directory_without_permission_is_named(places: Places) -> None:
    path = places.root / "private"
    check(
        [places.case(text, path, at, is_powerless=True) for at, text in enumerate(DIRECTORIES)],
        str(path),
    )


def test_full_disk_is_reported(places: Places) -> None:
    texts = [text for text in DIRECTORIES if not text.startswith(NEVER_WRITE)]
    texts = [text for text in texts if "pipeline tables" not in text]
    cases = [
        places.case(text, places.root / f"full-{at}", at, bytes_max=0)
        for at, text in enumerate(texts)
    ]
    check(cases, str(places.root / "full-"))
    full = [places.case(text, "/dev/full", at) for at, text in enumerate(WRITE)]
    check(full, "/dev/full: No space left on device")


def test_file_that_cannot_be_written_is_named(places: Places) -> None:
    for path in (places.root / "directory", places.root / "file" / "below"):
        check([places.case(text, path, at) for at, text in enumerate(WRITE)], str(path))
    path = places.root / "private" / "new"
    cases = [places.case(text, path, at, is_powerless=True) for at, text in enumerate(WRITE)]
    check(cases, str(path))


@pytest.mark.parametrize("kind", ["full", "closed"])
def test_output_that_cannot_be_written_is_reported(places: Places, kind: str) -> None:
    says = {"full": "No space left on device", "closed": "output is closed"}[kind]
    chosen = [text for text in PRINT if not text.startswith(QUIET)]
    cases = [
        places.case(text, places.root / f"new-{at}", at, stdout=kind)
        for at, text in enumerate(chosen)
    ]
    check(cases, says)


def test_reader_that_closes_the_pipe_ends_a_command_quietly(places: Places) -> None:
    cases = [
        places.case(text, places.root / f"new-{at}", at, stdout="broken")
        for at, text in enumerate(PRINT)
    ]
    for case, result in zip(cases, run_all(cases), strict=True):
        said = result["stderr"]
        codes = (0, 1, 3) if "--help" in case["words"] else (0, 3)  # typer prints the help
        assert result["code"] in codes, (case["words"], result["code"], said)
        assert "Traceback" not in said and "Broken pipe" not in said, case["words"]
