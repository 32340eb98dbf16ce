"""Files and process lists of `ottla up --secure`: no other user of the machine reads a secret."""

import ast
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.free_ports import free_ports
from up_process import COMMAND, Up

SECRET = "giraffe-of-the-store"
SECONDS_MAX = 120


@contextmanager
def open_umask() -> Iterator[None]:
    """Let processes that are started here create files with the modes that they ask for."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def modes(root: Path) -> dict[str, str]:
    """Return the mode of each file and directory that other users may read or write."""
    return {
        str(path.relative_to(root)): oct(path.lstat().st_mode & 0o777)
        for path in sorted(root.rglob("*"))
        if path.lstat().st_mode & 0o077 and not path.is_symlink()
    }


def holding(root: Path, secret: str) -> list[str]:
    return sorted(
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and secret.encode() in path.read_bytes()
    )


def command_lines(data: Path) -> list[bytes]:
    """Return the command lines of all processes that were started with this directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if str(data).encode() in words:
            found.append(words)
    return found


def run(*words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *words],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        env={**os.environ, **variables},
    )


def test_attached_secure_cluster_has_only_private_files(tmp_path: Path) -> None:
    data, port = tmp_path / "data", free_ports(2)[0]
    with open_umask():
        up = Up(data, port, "--secure", "-c", f"ssl.key.password={SECRET}")
    try:
        up.wait_ready()
        assert modes(data) == {}
    finally:
        code, errors = up.end()
    assert code == 0, errors
    assert SECRET not in errors and "ssl.key.password=(hidden)" in errors
    password = json.loads((data / "security/credentials.json").read_bytes())["password"]
    assert holding(data, password) == [
        "node-1/server.properties",
        "security/client.properties",
        "security/credentials.json",
    ]


def test_detached_secure_cluster_prints_settings_and_writes_no_password_to_its_log(
    tmp_path: Path,
) -> None:
    data, port = tmp_path / "data", free_ports(4)[0]
    data.mkdir()
    (data / "up.log").write_text("of an earlier version\n")
    (data / "up.log").chmod(0o644)
    given = ("up", "--secure", "--nodes", "2", "--port", str(port), "--data", str(data))
    with open_umask():
        done = run(*given, "--detach", "-c", f"ssl.key.password={SECRET}")
    try:
        assert done.returncode == 0, done.stderr
        assert modes(data) == {}
        assert not [words for words in command_lines(data) if SECRET.encode() in words]
        config = ast.literal_eval(done.stdout.partition("config = ")[2].partition("}")[0] + "}")
        profiles = {"OTTLA_PROFILES": str(tmp_path / "config" / "profiles.toml")}
        kept = done.stdout.partition("# ottla\nottla ")[2].partition("\n")[0].split()
        with open_umask():
            assert run(*kept, **profiles).returncode == 0
        assert modes(tmp_path / "config") == {}
        assert run("topic", "list", "--profile", "local", **profiles).returncode == 0
        shown = json.loads(run("up", "status", "--data", str(data), "-o", "json").stdout)
        assert "client_config" not in shown
    finally:
        stopped = run("up", "stop", "--data", str(data))
    assert stopped.returncode == 0, stopped.stderr
    logs = (data / "up.log").read_text()
    assert config["sasl.password"] not in logs and SECRET not in logs
    assert "earlier version" not in logs


def test_detached_secure_cluster_prints_settings_for_programs(tmp_path: Path) -> None:
    data, port = tmp_path / "data", free_ports(2)[0]
    given = ("up", "--secure", "--port", str(port), "--data", str(data), "-o", "json")
    try:
        done = run(*given, "--detach")
        started = json.loads(done.stdout)
    finally:
        run("up", "stop", "--data", str(data))
    assert started["state"] == "ready"
    assert started["client_config"]["bootstrap.servers"] == started["bootstrap"]
    assert started["client_config"]["sasl.password"]


@pytest.mark.parametrize("name", ["broker", "alice"])
def test_keys_of_created_certificates_are_private(tmp_path: Path, name: str) -> None:
    with open_umask():
        assert run("cert", "create", name, "--dir", str(tmp_path / "certs")).returncode == 0
    assert modes(tmp_path / "certs") == {"ca.pem": "0o644", f"{name}.crt": "0o644"}


def test_format_reads_scram_passwords_from_a_private_file(tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text(
        "process.roles=broker,controller\nnode.id=1\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:9093\n"
        f"log.dirs={tmp_path / 'logs'}\n"
    )
    scram = tmp_path / "scram"
    scram.write_text(f"# users\nSCRAM-SHA-512=[name=alice,password={SECRET}]\n\n")
    done = run("format", str(settings), "--add-scram", f"@{scram}")
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stderr + done.stdout
    assert b"alice" in (tmp_path / "logs" / "bootstrap.checkpoint").read_bytes()
    missing = run("format", str(settings), "--add-scram", f"@{tmp_path / 'none'}", "-o", "json")
    assert missing.returncode == 2 and "No such file" in missing.stderr


def test_node_creates_no_file_that_others_may_read(tmp_path: Path) -> None:
    """Records and SCRAM users are in files of the data directory."""
    settings = tmp_path / "server.properties"
    client, controller = free_ports(2)
    settings.write_text(
        "process.roles=broker,controller\nnode.id=1\n"
        f"listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}\n"
        f"controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n"
        f"log.dirs={tmp_path / 'logs'}\n"
    )
    with open_umask():
        assert run("format", str(settings)).returncode == 0
        node = subprocess.Popen([*COMMAND, "server", str(settings)], stdout=subprocess.PIPE)
    try:
        assert node.stdout is not None and node.stdout.readline()
        bootstrap = ("--bootstrap", f"127.0.0.1:{client}")
        assert run("topic", "create", "orders", *bootstrap).returncode == 0
        found = [path for path in (tmp_path / "logs").rglob("*") if path.lstat().st_mode & 0o027]
        assert found == []
        assert (tmp_path / "logs").lstat().st_mode & 0o027 == 0
    finally:
        node.terminate()
        node.communicate(timeout=SECONDS_MAX)


def test_only_one_function_changes_the_mode_of_a_file() -> None:
    """Files are private from their creation: none is made private afterwards."""
    root = Path(__file__).parents[2] / "src" / "ottla"
    calls, callers = set(), set()
    for path in root.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        module = path.relative_to(root).as_posix()
        for node in ast.walk(tree):
            name = getattr(node, "attr", None) or getattr(node, "value", None)
            if name in ("chmod", "fchmod", "lchmod"):
                calls.add(module)
            if name == "make_private":
                callers.add(module)
    assert calls == {"runtime/system_calls.py"}
    assert callers == {"security/private_files.py"}
