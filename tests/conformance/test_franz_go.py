"""franz-go's own integration tests against a node: groups, transactions and share groups.

Its transactional test keeps several Produce requests in flight at the start of every transaction,
which no other client here does.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ottla.testing import run_node

pytestmark = [pytest.mark.external, pytest.mark.timeout(1200)]

MODULE = "github.com/twmb/franz-go@v1.22.2"
BUILD = Path(__file__).parents[2] / "build" / "franz-go"
RECORDS = "20000"
SECONDS_MAX = 600


@pytest.fixture(scope="module")
def suite() -> Path:
    """The compiled tests of franz-go's client, kept between runs."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed; franz-go's tests cannot be built")
    binary = BUILD / "kgo.test"
    if not binary.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        command = ["go", "mod", "download", "-json", MODULE]
        found = subprocess.run(command, cwd=BUILD, capture_output=True, text=True)
        if found.returncode != 0:
            pytest.skip(f"franz-go cannot be fetched: {found.stdout[-300:]}{found.stderr[-300:]}")
        source = BUILD / "source"
        shutil.copytree(json.loads(found.stdout)["Dir"], source, dirs_exist_ok=True)
        # What the module cache holds is read-only, and go writes beside the module file.
        subprocess.run(["chmod", "-R", "u+w", str(source)], check=True)
        subprocess.run(
            ["go", "test", "-c", "-o", str(binary), "."], cwd=source / "pkg" / "kgo", check=True
        )
    return binary


@pytest.mark.parametrize("name", ["TestTxnEtl", "TestGroupETL", "TestShareGroup"])
def test_franz_go_passes_its_own_test(suite: Path, tmp_path: Path, name: str) -> None:
    with run_node(processes=True, directory=tmp_path / "node") as node:
        done = subprocess.run(
            [str(suite), "-test.run", f"^{name}", "-test.timeout", f"{SECONDS_MAX}s", "-test.v"],
            env={
                **os.environ,
                "KGO_SEEDS": node.bootstrap,
                "KGO_TEST_RF": "1",
                "KGO_TEST_RECORDS": RECORDS,
            },
            cwd=BUILD / "source" / "pkg" / "kgo",
            capture_output=True,
            text=True,
        )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-4000:]
    assert f"--- PASS: {name}" in said, "it ran no test"
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" not in said
