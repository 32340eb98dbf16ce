"""Runs of proofs that are interrupted, and a second one at the same time."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.patience import SECONDS_MAX
from tests.unit.test_evidence import PROOF, ROOT, commit, evidence, git, states
from tools.evidence.proof import load_run

pytestmark = pytest.mark.slow

SLOW = """
[[proof]]
name = "slow"
promise = "It waits for a file."
command = 'echo $$ > begun; until [ -e go ]; do sleep 0.05; done; echo "1 passed in 0.10s"'
paths = ["one.txt"]
minutes = 2
required = true
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a proof that runs first, and one that ends once the file `go` exists."""
    for folder in ("evidence", "docs"):
        (tmp_path / folder).mkdir()
    quick = PROOF.format(name="one", command="grep yes one.txt")
    (tmp_path / "evidence/proofs.toml").write_text(quick + SLOW)
    (tmp_path / "one.txt").write_text("yes\n")
    (tmp_path / ".gitignore").write_text("go\nbegun\nbuild\n")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def wait_until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def begin(root: Path) -> subprocess.Popen:
    """Run all stale proofs, and return when the slow one has begun."""
    code = (  # a shell's background job ignores SIGINT, and so would this process
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "import tools.evidence.runner as runner; runner.QUIET_WAIT_S_MAX = 0;"
        "from tools.evidence.__main__ import main; sys.exit(main())"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "--root", str(root), "--run", "stale", "--budget", "3600"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    begun = root / "begun"
    wait_until(lambda: process.poll() is not None or (begun.exists() and bool(begun.read_text())))
    return process


def is_running(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=str)
def test_interrupted_run_goes_on_with_what_had_not_ended(
    number: signal.Signals, repository: Path
) -> None:
    interrupted = begin(repository)
    command = int((repository / "begun").read_text())
    interrupted.send_signal(number)
    interrupted.communicate(timeout=SECONDS_MAX)
    assert states(repository) == {"one": "proven", "slow": "never"}
    first = load_run(repository, "one")
    if number != signal.SIGKILL:
        wait_until(lambda: not is_running(command))
    (repository / "begun").unlink()
    resumed = begin(repository)
    assert not is_running(command), "the command of the interrupted run is still there"
    (repository / "go").touch()
    output, _ = resumed.communicate(timeout=SECONDS_MAX)
    assert resumed.returncode == 0, output
    assert states(repository) == {"one": "proven", "slow": "proven"}
    assert load_run(repository, "one") == first, "a proof that holds was run again"
    slow = load_run(repository, "slow")
    assert slow is not None and slow.counts == {"passed": 1}
    assert "passed 1" in (repository / "docs/evidence.md").read_text()


def test_second_run_at_the_same_time_is_refused(repository: Path) -> None:
    running = begin(repository)
    refused = evidence(repository, "--run", "one")
    assert refused.returncode == 2
    assert f"by process {running.pid}" in refused.stderr
    (repository / "go").touch()
    running.communicate(timeout=SECONDS_MAX)
    assert running.returncode == 0
