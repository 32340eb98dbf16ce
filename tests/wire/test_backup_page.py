"""docs/backup.md works as written: a backup is restored; a quorum survives two lost voters."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.free_ports import free_ports
from up_process import COMMAND, SECONDS_MAX

PAGE = Path(__file__).parents[2] / "docs" / "backup.md"


def blocks(title: str) -> list[str]:
    text = PAGE.read_text().partition(f"## {title}")[2].partition("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", text, re.S)


class Shell:
    """Runs scripts of the page in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
        }

    def __call__(self, script: str, code: int = 0) -> str:
        done = subprocess.run(
            ["bash", "-ec", script],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=2 * SECONDS_MAX,
        )
        assert done.returncode == code, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout


def test_backup_is_restored_with_records_and_offsets(tmp_path: Path) -> None:
    shell, port = Shell(tmp_path), free_ports(2)[0]
    at = shell.environment["OTTLA_BOOTSTRAP"] = f"127.0.0.1:{port}"
    try:
        shell(f"ottla up --detach --data cluster --port {port}; ottla topic create orders -p 1")
        shell("printf 'one\\ntwo\\nthree\\n' | ottla produce orders")
        consumer = Consumer({"bootstrap.servers": at, "group.id": "readers"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
        consumer.close()
        (backup,) = blocks("Back up a node")
        shell(backup)
        shell("ottla topic delete orders; ottla up stop --data cluster; rm -r cluster")
        (restore,) = blocks("Restore a cluster")
        shell(restore)
        assert shell("ottla consume orders -e") == "one\ntwo\nthree\n"
        (row,) = json.loads(shell("ottla group lag readers -o json"))
        assert row["lag"] == 1
    finally:
        for name in ("cluster", "restored"):
            subprocess.run([*COMMAND, "up", "stop", "--data", str(tmp_path / name)], check=False)


# -- the loss of two voters --------------------------------------------------------


@contextmanager
def server(shell: Shell, settings: str) -> Iterator["subprocess.Popen[bytes]"]:
    with (shell.directory / f"{settings}.log").open("ab") as log:
        process = subprocess.Popen(
            [*COMMAND, "server", settings],
            cwd=shell.directory,
            env=shell.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def write_settings(directory: Path, node: int, name: str, ports: list[int]) -> None:
    voters = ",".join(f"{at}@127.0.0.1:{ports[at + 2]}" for at in (1, 2, 3))
    (directory / f"{name}.properties").write_text(
        f"process.roles=broker,controller\nnode.id={node}\ncontroller.quorum.voters={voters}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{ports[node - 1]},"
        f"CONTROLLER://127.0.0.1:{ports[node + 2]}\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={directory}/{name}\n"
        "min.insync.replicas=1\ndefault.replication.factor=3\n"
        "controlled.shutdown.enable=false\n"  # there is nobody to grant it
    )


def write_controller(directory: Path, name: str, copy: str, port: int) -> None:
    text = (directory / f"{name}.properties").read_text()
    text = text.replace("process.roles=broker,controller", "process.roles=controller")
    text = re.sub(r"listeners=PLAINTEXT.*", f"listeners=CONTROLLER://127.0.0.1:{port}", text)
    (directory / f"{copy}.properties").write_text(text)


def wait_until(shell: Shell, command: str, wanted: "re.Pattern[str]") -> str:
    deadline = time.monotonic() + 2 * SECONDS_MAX
    while True:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=shell.directory,
            env=shell.environment,
            capture_output=True,
            text=True,
        )
        if done.returncode == 0 and wanted.search(done.stdout):
            return done.stdout
        assert time.monotonic() < deadline, done.stdout + done.stderr
        time.sleep(0.1)


@pytest.mark.slow
def test_quorum_survives_the_loss_of_two_of_three_voters(tmp_path: Path) -> None:
    shell, ports = Shell(tmp_path), free_ports(6)
    steps = blocks("Two of three voters are lost")
    survivor = f"127.0.0.1:{ports[0]}"
    shell.environment |= {
        "OTTLA_BOOTSTRAP": survivor,
        "SURVIVOR": survivor,
        "CLUSTER_ID": "3bNfWqRkQo6UWx2Hk1ZfRg",
    }
    names = ["old-1", "old-2", "old-3"]
    for node, name in enumerate(names, 1):
        write_settings(tmp_path, node, name, ports)
        shell(f"ottla format --config {name}.properties -t $CLUSTER_ID")
    with server(shell, "old-1.properties") as first:
        with (
            server(shell, "old-2.properties") as second,
            server(shell, "old-3.properties") as third,
        ):
            wait_until(shell, "ottla cluster health && echo fine", re.compile("fine"))
            shell("ottla topic create orders -p 3; seq 300 | ottla produce orders")
            wait_until(shell, "ottla cluster health && echo fine", re.compile("fine"))
            second.kill()
            third.kill()
        shutil.rmtree(tmp_path / "old-2")
        shutil.rmtree(tmp_path / "old-3")
        first.send_signal(signal.SIGTERM)
        first.wait(2 * SECONDS_MAX)
    for node in (2, 3):
        write_settings(tmp_path, node, f"new-{node}", ports)
    write_controller(tmp_path, "new-2", "controller-2", ports[4])
    format_second, show, elect, format_third = steps
    shell(format_second)
    with server(shell, "old-1.properties"):
        with server(shell, "controller-2.properties"):
            caught_up = re.compile(r"^ *1 +leader .*\n *2 +voter +\d+ +0 +yes$", re.M)
            wait_until(shell, show, caught_up)
            wait_until(
                shell, f"{elect.strip()} && ottla consume orders -e", re.compile(r"^300$", re.M)
            )
        shell(format_third)
        with server(shell, "new-2.properties"), server(shell, "new-3.properties"):
            wait_until(shell, "ottla cluster health && echo fine", re.compile("fine"))
            found = shell("ottla consume orders -e").split()
            assert sorted(map(int, found)) == list(range(1, 301))
            shell("ottla topic create after -p 1; echo x | ottla produce after")
