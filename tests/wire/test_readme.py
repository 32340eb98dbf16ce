"""Every block of the README and the examples runs against a node, in this environment.

`tests/conformance/test_readme_clone.py` runs the same blocks as typed, from a fresh clone.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.free_ports import free_ports
from tests.patience import SECONDS_MAX
from tests.readme_blocks import ROOT, Block, readme_blocks
from up_process import Up

# Blocks that start a node themselves, or test everything; what they install is here already.
NOT_RUN = ("make run",)


def blocks() -> list[Block]:
    found = [each for each in readme_blocks() if not each.text.startswith(NOT_RUN)]
    return [each for each in found if not each.is_install]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    up = Up(tmp_path, free_ports(2)[0])
    try:
        yield up.wait_ready().split()[1]
    finally:
        up.end()


def run(address: str, command: list[str]) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        env={**os.environ, "PATH": path, "OTTLA_BOOTSTRAP": address},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_block(address: str, block: Block) -> str:
    text = block.text.replace("localhost:9092", address)
    if block.is_test:
        return run_as_test(address, text)
    if block.language == "python":
        return run(address, [sys.executable, "-c", text])
    lines = [line for line in text.splitlines() if not line.startswith("pip install")]
    return run(address, ["bash", "-euo", "pipefail", "-c", "\n".join(lines)])


def run_as_test(address: str, text: str) -> str:
    """Run a block as a user's test: by pytest, in a directory that knows nothing of this one."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "test_of_a_user.py").write_text(text)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        return run(address, [*command, "--rootdir", directory, directory])


def test_readme_commands_work(address: str) -> None:
    """In its order: later blocks read what earlier ones wrote."""
    texts = [each.text for each in blocks()]
    for name in (
        "ottla produce",
        "ottla sql",
        "kcat -C",
        "confluent_kafka",
        "aiokafka",
        "import KafkaConsumer",
    ):
        assert any(name in text for text in texts), f"README shows no {name}"
    for block in blocks():
        if "kcat" in block.text and shutil.which("kcat") is None:
            continue  # tests/clients has it where it is installed; the others must not wait for it
        said = run_block(address, block)
        if "ottla sql" in block.text:
            assert said.split()[-2:] == ["lars", "1"], said
        elif "greetings" in block.text:
            assert "good morning" in said or "good" in said.splitlines()[-1], block.text
    last = Block("sh", "ottla consume greetings -e -K :\n")
    assert "lars:good morning" in run_block(address, last)


def test_first_topic_example_runs(address: str) -> None:
    said = run(address, [sys.executable, str(ROOT / "examples" / "first_topic.py"), address])
    assert "greetings-0 leader=1" in said and "quorum leader=1" in said


def test_first_records_example_runs_twice(address: str) -> None:
    script = str(ROOT / "examples" / "first_records.py")
    said = run(address, [sys.executable, script, address])
    assert said.count("wrote first-records-") == 3
    assert said.count("good") == 3
    again = run(address, [sys.executable, script, address])
    assert again.count("good") == 6, "what was there and what came"


def test_make_run_is_what_the_readme_says() -> None:
    # Make says where it is when another make runs it, as when it runs the tests.
    command = ["make", "--no-print-directory", "-n", "run"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    # Ctrl-C ends it with 130, which is no failure.
    assert shown.stdout.rstrip().endswith("ottla up || [ $? -eq 130 ]")
