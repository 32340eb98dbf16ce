"""The files of `make dist`, each in a clean environment: install it, run a node, send a record."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.free_ports import free_ports

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.external, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, ROOT / "tools" / "dist.py", target], check=True)
    return target


def named(pattern: str, *, is_compiled: bool) -> tuple[Callable[[Path], Path], bool]:
    def find(built: Path) -> Path:
        (found,) = built.glob(pattern)
        return found

    return find, is_compiled


@pytest.mark.parametrize(
    ("find", "is_compiled"),
    [
        named("*manylinux*.whl", is_compiled=True),
        named("*-py3-none-any.whl", is_compiled=False),
        named("*.tar.gz", is_compiled=True),
    ],
    ids=["compiled", "pure", "sdist"],
)
def test_node_runs_from_a_clean_environment(
    built: Path, tmp_path: Path, find: Callable[[Path], Path], is_compiled: bool
) -> None:
    def run(*command: object, given: str = "") -> str:
        # Nothing of this checkout may be found from there.
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        environment |= {
            k: v for k, v in os.environ.items() if k.startswith(("PIP_", "HTTP", "SSL"))
        }
        done = subprocess.run(
            list(map(str, command)),
            input=given,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(sys.executable, "-m", "venv", tmp_path / "venv")
    programs = tmp_path / "venv" / "bin"
    run(programs / "python", "-m", "pip", "install", "-q", find(built))
    assert run(programs / "ottla", "--version").startswith("ottla ")
    shown = "import ottla.storage.log.log_tail as module; print(module.__file__)"
    assert run(programs / "python", "-c", shown).strip().endswith(".so" if is_compiled else ".py")
    port = free_ports(2)[0]
    up = (programs / "ottla", "up")
    run(*up, "--detach", "--port", port, "--data", tmp_path / "data")
    try:
        at = ("-b", f"127.0.0.1:{port}")
        run(programs / "ottla", "produce", "greetings", *at, given="good morning\n")
        assert run(programs / "ottla", "consume", "greetings", "-e", *at) == "good morning\n"
    finally:
        run(*up, "stop", "--data", tmp_path / "data")
