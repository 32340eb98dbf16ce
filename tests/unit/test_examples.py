"""What README and examples show works as shown."""

import re
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


def test_the_readme_speaks_the_truth() -> None:
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert snippets
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), {})
