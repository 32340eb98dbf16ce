"""``ottla migrate`` against a running cluster."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.patience import SECONDS_MAX
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.testing import Cluster


def ottla(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
    return done.stdout


def active_controller(at: str) -> int:
    status = json.loads(ottla("migrate", "status", "-b", at, "--wait", "-o", "json"))
    (active,) = [each["id"] for each in status["nodes"] if each["active_controller"]]
    return int(active)


def planned(at: str) -> tuple[int, list[dict[str, Any]]]:
    """Return the active controller and a plan; on a busy machine it may change in between."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        before = active_controller(at)
        steps = json.loads(ottla("migrate", "plan", "--back", "-b", at, "-o", "json"))
        if active_controller(at) == before:
            return before, steps
        assert time.monotonic() < deadline, "the active controller changes for ever"


def test_status_tells_ottla_nodes_and_that_it_is_safe(ottla_cluster: Cluster) -> None:
    at = ottla_cluster.bootstrap
    ottla("topic", "create", "orders", "-p", "2", "-r", "3", "-b", at)
    found = json.loads(ottla("migrate", "status", "-b", at, "--wait", "-o", "json"))
    assert {each["software"] for each in found["nodes"]} == {"Ottla"}
    assert [each["id"] for each in found["nodes"]] == ottla_cluster.node_ids
    assert (found["safe_to_go_on"], found["reasons"]) == (True, [])
    assert sum(each["active_controller"] for each in found["nodes"]) == 1
    checked = json.loads(ottla("migrate", "check", "-b", at, "-o", "json"))
    assert {each["state"] for each in checked} <= {"supported", "warning"}
    assert "metadata.version" in {each["subject"] for each in checked}
    active, steps = planned(at)
    assert [steps[-1]["node"], len(steps)] == [active, 3]

    ottla_cluster.stop(next(each for each in ottla_cluster.node_ids if each != active))
    refused = ottla("migrate", "status", "-b", at, "--nodes", "3", "-o", "json", code=1)
    assert not json.loads(refused)["safe_to_go_on"]
    ottla("migrate", "plan", "-b", at, code=1)


def test_check_of_a_file_names_lines_and_exits_1(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker\nnode.id=1\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
        "controller.listener.names=CONTROLLER\nlisteners=PLAINTEXT://:9092\n"
        f"log.dirs={tmp_path}/none\nmetric.reporters=com.example.Reporter\n"
    )
    found = json.loads(ottla("migrate", "check", str(file), "-o", "json", code=1))
    rows = {each["subject"]: each for each in found}
    assert (rows["metric.reporters"]["state"], rows["metric.reporters"]["line"]) == ("ignored", 7)
    assert rows[f"{tmp_path}/none"]["state"] == "problem"


@pytest.mark.parametrize("arguments", [["check"], ["check", "/no/such/file"]])
def test_check_without_anything_to_check_fails(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, ["migrate", *arguments])
    assert done.exit_code in (1, 2) and done.stderr
