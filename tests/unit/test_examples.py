"""Examples that need no node work as shown; the others are in tests/wire/test_readme.py."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_first_log_writes_and_reads_back(tmp_path: Path) -> None:
    for run in (1, 2):
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "first_log.py"), str(tmp_path / "data")],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("good morning") == run
        assert f"wrote offsets {(run - 1) * 4} to {run * 4 - 1}" in done.stdout
