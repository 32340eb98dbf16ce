"""A clean environment for each artefact: install it with every extra, and try it."""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from tools.release.licences import Dependency
from tools.release.report import Problem, Unchecked

INSTALL_S_MAX = 1800
TRY_S_MAX = 300
# Nothing of the checkout may be found from there.
KEPT_VARIABLES = ("PIP_", "HTTP", "HTTPS", "SSL", "REQUESTS", "NO_PROXY", "LANG", "JAVA_HOME")
FIXTURE_TEST = """
from ottla.testing import Cluster


def test_record_is_read_back(ottla_node: Cluster) -> None:
    import asyncio

    host, port = ottla_node.address(1).split(":")

    async def connect() -> None:
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()

    asyncio.run(connect())
"""
LIST_DEPENDENCIES = """
import importlib.metadata as metadata, json
rows = []
for each in metadata.distributions():
    head = each.metadata
    rows.append({
        "name": head["Name"], "version": each.version, "text": head.get("License") or "",
        "expression": head.get("License-Expression") or "",
        "classifiers": [c for c in head.get_all("Classifier") or [] if c.startswith("License ::")],
    })
print(json.dumps(rows))
"""


class Environment:
    """A virtual environment, and a home directory of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "venv" / "bin"
        venv.create(root / "venv", with_pip=True, clear=True)

    def install(self, requirement: str) -> None:
        """Install with pip. Raises Problem with the end of its output."""
        pip = (self.bin / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check")
        self.run(*pip, requirement, seconds=INSTALL_S_MAX)

    def run(self, *command: object, given: str = "", seconds: float = TRY_S_MAX) -> str:
        """Run a command outside of the checkout; return its output. Raises Problem."""
        variables = {"PATH": os.environ["PATH"], "HOME": str(self.root)}
        variables |= {
            key: value
            for key, value in os.environ.items()
            if key.upper().startswith(KEPT_VARIABLES)
        }
        words = list(map(str, command))
        try:
            done = subprocess.run(
                words,
                input=given,
                cwd=self.root,
                env=variables,
                capture_output=True,
                text=True,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired as error:
            raise Problem(f"{' '.join(words[:4])}: no end after {seconds:.0f} s") from error
        if done.returncode:
            tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
            raise Problem(f"{' '.join(words)}: exit code {done.returncode}\n{tail}")
        return done.stdout

    def try_out(self, version: str, *, is_compiled: bool) -> None:
        """Run the command, a node and the fixture. Raises Problem."""
        shown = self.run(self.bin / "ottla", "--version").strip()
        if version not in shown:
            raise Problem(f"`ottla --version` prints {shown!r} instead of {version}")
        where = "import ottla.storage.log.log_tail as module; print(module.__file__)"
        library = self.run(self.bin / "python", "-c", where).strip()
        if library.endswith(".so") is not is_compiled:
            raise Problem(f"{library} is used, is_compiled={is_compiled}")
        self._exchange_record()
        (self.root / "test_fixture.py").write_text(FIXTURE_TEST)
        self.run(self.bin / "python", "-m", "pytest", "-q", "test_fixture.py")

    def _exchange_record(self) -> None:
        up, at = (self.bin / "ottla", "up"), ("-b", f"127.0.0.1:{_free_port()}")
        data = self.root / "data"
        self.run(*up, "--detach", "--port", at[1].rpartition(":")[2], "--data", data)
        try:
            self.run(self.bin / "ottla", "produce", "greetings", *at, given="good morning\n")
            received = self.run(self.bin / "ottla", "consume", "greetings", "-e", *at)
        finally:
            self.run(*up, "stop", "--data", data)
        if received != "good morning\n":
            raise Problem(f"the node answered {received!r} instead of the record")

    def dependencies(self) -> list[Dependency]:
        """Return all installed packages, without the product itself and pip."""
        rows = json.loads(self.run(self.bin / "python", "-c", LIST_DEPENDENCIES))
        return [
            Dependency(**{**row, "classifiers": tuple(row["classifiers"])})
            for row in rows
            if row["name"].lower() not in {"ottla", "pip", "setuptools", "pytest"}
        ]


def check_extra_builds(environment: Environment, artefact: Path, extra: str, program: str) -> None:
    """Install an extra that is compiled against a system library. Raises Problem, Unchecked."""
    if not _has_program(program):
        raise Unchecked(f"[{extra}] needs a library of the system: {program} is not installed")
    environment.install(f"{artefact}[{extra}]")


def _has_program(name: str) -> bool:
    import shutil

    return shutil.which(name) is not None


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def audit(tools: Path, pinned: Sequence[Dependency], workspace: Path) -> str:
    """Ask the registry for known vulnerabilities; return a line. Raises Problem, Unchecked."""
    listed = workspace / "pinned.txt"
    listed.write_text("".join(f"{each.name}=={each.version}\n" for each in pinned))
    options = ("--requirement", listed, "--no-deps", "--disable-pip", "--format", "json")
    try:
        done = subprocess.run(
            [sys.executable if not tools.exists() else tools, "-m", "pip_audit", *options],
            capture_output=True,
            text=True,
            timeout=INSTALL_S_MAX,
        )
    except subprocess.TimeoutExpired as error:
        raise Unchecked("the vulnerability service did not answer") from error
    return read_audit(done.stdout, done.stderr, len(pinned))


def read_audit(output: str, errors: str, pinned: int) -> str:
    """Return a line about the report of pip-audit. Raises Problem, Unchecked."""
    try:
        packages = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError) as error:
        last = errors.strip().splitlines()[-1:] or ["no output"]
        raise Unchecked(f"the vulnerability service gave no report: {last[0]}") from error
    found = [
        f"{package['name']} {package['version']}: {each['id']}, fixed in "
        f"{', '.join(each.get('fix_versions', [])) or 'no version'}"
        for package in packages
        for each in package.get("vulns", [])
    ]
    if found:
        raise Problem("known vulnerabilities:\n" + "\n".join(found))
    asked = [package for package in packages if "skip_reason" not in package]
    if len(asked) < pinned:
        skipped = [package for package in packages if "skip_reason" in package]
        first = f"{skipped[0]['name']}: {skipped[0]['skip_reason']}" if skipped else "none listed"
        raise Unchecked(f"asked for {len(asked)} of {pinned} packages only; {first}")
    return f"no known vulnerability in {len(asked)} packages"
