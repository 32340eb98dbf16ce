"""The examples of tests with other frameworks, with the frameworks from PyPI."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ROOT / "build" / "testing-examples"
PACKAGES = ("pytest-asyncio", "fastapi", "httpx", "django")
pytestmark = pytest.mark.external


@pytest.mark.parametrize("arguments", [[], ["-n", "2"]], ids=["one-process", "xdist"])
def test_examples_pass(arguments: list[str]) -> None:
    if not (FRAMEWORKS / "django").exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(FRAMEWORKS)]
        done = subprocess.run([*pip, *PACKAGES], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"the frameworks cannot be installed: {done.stderr[-300:]}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-c", "/dev/null"]
    command += [f"--rootdir={ROOT / 'examples' / 'frameworks'}", *arguments, "examples/frameworks"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(FRAMEWORKS)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed" in done.stdout
