"""Builds the harness of Apache Kafka's tests, and runs one class of tests in a JVM."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.kafka_suite.reports import OUTPUT

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
BUILD = ROOT / "build" / "kafka-suite"
JARS = BUILD / "jars"
CLASSES = BUILD / "classes"
REPORTS = BUILD / "reports"
CLASS_SECONDS_MAX = 1800
TEST_SECONDS_MAX = 180
_EXCLUDED = (
    # The standalone launcher contains them.
    "junit-platform-commons",
    "junit-platform-engine",
    "junit-platform-launcher",
    "junit-jupiter",
    "junit-jupiter-api",
    "junit-jupiter-engine",
    "junit-jupiter-params",
    # Older than bcprov-jdk18on, with the same classes.
    "bcprov-jdk15on",
)


class CannotRun(Exception):
    """A tool is missing, or the jars cannot be fetched or compiled; the text says which and why."""


def build() -> None:
    """Fetch the jars and compile the harness, unless that is done. Raises CannotRun."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            raise CannotRun(f"{tool} is not installed")
    fetched = BUILD / "fetched"
    pom = HERE / "pom.xml"
    if not fetched.exists() or fetched.stat().st_mtime < pom.stat().st_mtime:
        shutil.rmtree(JARS, ignore_errors=True)
        options = (f"-DoutputDirectory={JARS}", f"-DexcludeArtifactIds={','.join(_EXCLUDED)}")
        _call("mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", *options)
        fetched.touch()
    sources = sorted((HERE / "java").rglob("*.java"))
    newest = max(path.stat().st_mtime for path in (*sources, pom))
    stamp = CLASSES / "built"
    if stamp.exists() and stamp.stat().st_mtime >= newest:
        return
    shutil.rmtree(CLASSES, ignore_errors=True)
    CLASSES.mkdir(parents=True)
    _call("javac", "-nowarn", "-d", CLASSES, "-cp", f"{JARS}/*", *sources)
    _call("java", "-cp", f"{CLASSES}:{JARS}/*", "ottla.PatchHarness", CLASSES)
    stamp.touch()


def test_jars() -> list[Path]:
    """Return the jars that contain tests."""
    return sorted(JARS.glob("*-test.jar"))


test_jars.__test__ = False  # type: ignore[attr-defined]


def run(test_class: str, method: str | None = None) -> Path:
    """Run a class of tests, or one method of it, and return the directory of its reports."""
    reports = REPORTS / test_class
    shutil.rmtree(reports, ignore_errors=True)
    (reports / "nodes").mkdir(parents=True)
    chosen = f"--select-method={test_class}#{method}" if method else f"--select-class={test_class}"
    command = [
        "java",
        "-Xmx2g",
        # A class runs for a minute or so: compiling well costs more than it saves.
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        f"-Dottla.python={sys.executable}",
        f"-Dottla.starter={HERE / 'node_starter.py'}",
        f"-Dottla.logs={reports / 'nodes'}",
        "-cp",
        f"{CLASSES}:{JARS}/*",
        "org.junit.platform.console.ConsoleLauncher",
        "execute",
        "--disable-banner",
        "--disable-ansi-colors",
        "--details=testfeed",
        f"--config=junit.jupiter.execution.timeout.testable.method.default={TEST_SECONDS_MAX} s",
        "--config=junit.platform.output.capture.stderr=true",
        f"--reports-dir={reports}",
        chosen,
    ]
    with (reports / OUTPUT).open("wb") as output:
        process = subprocess.Popen(
            command, cwd=BUILD, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.wait(CLASS_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            output.write(f"\nstopped after {CLASS_SECONDS_MAX} s\n".encode())
        finally:
            # The starter and its nodes belong to the process group of the JVM.
            _end_group(process)
    return reports


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _call(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-600:]
        raise CannotRun(f"{command[0]} failed: {said}")
