"""The examples of the help pages that need nothing but a node run, in one session of a user.

The others (processes, several brokers, Spark, mirrors) are parsed by
`tests/unit/test_cli_examples.py` and have tests of their own.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.free_ports import free_ports
from tests.patience import SECONDS_MAX
from up_process import Up

from ottla.cli.examples import EXAMPLES

pytestmark = pytest.mark.slow

# In this order: later ones use what earlier ones made.
SESSION = (
    "up status",
    "topic create",
    "topic list",
    "topic describe",
    "topic alter",
    "topic offsets",
    "topic elect",
    "config set",
    "config get",
    "config describe",
    "client-metrics set",
    "client-metrics list",
    "client-metrics describe",
    "client-metrics delete",
    "cluster info",
    "cluster health",
    "cluster quorum describe",
    "cluster features describe",
    "group list",
    "share list",
    "txn list",
    "txn hanging",
    "user list",
    "quota set",
    "quota list",
    "quota remove",
    "cert create",
    "logdir list",
    "random-uuid",
    "topic delete",
)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[dict[str, str]]:
    up = Up(tmp_path / "ottla-data", free_ports(2)[0])
    try:
        address = up.wait_ready().split()[1]
        yield {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "OTTLA_BOOTSTRAP": address,
            "OTTLA_PROFILES": str(tmp_path / "profiles.toml"),
        }
    finally:
        up.end()


def test_examples_run_in_a_session(session: dict[str, str], tmp_path: Path) -> None:
    for path in SESSION:
        for line in EXAMPLES[path]:
            done = subprocess.run(
                ["bash", "-c", line],
                cwd=tmp_path,
                env=session,
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


def test_examples_of_records_and_sql_run(session: dict[str, str], tmp_path: Path) -> None:
    lines = [
        "ottla topic create greetings",
        EXAMPLES["produce"][0],
        EXAMPLES["consume"][0],
        EXAMPLES["sql"][0],
    ]
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        cwd=tmp_path,
        env=session,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    assert "lars:good morning" in done.stdout and done.stdout.split()[-2:] == ["lars", "1"]
