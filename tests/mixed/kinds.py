"""The kinds of nodes of a mixed cluster: Ottla, and releases of Apache Kafka.

Kafka's jars come through Maven once and are kept in ``build/kafka-<version>`` (those of the release
that all other tests use in ``build/kafka``).
"""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
POM = ROOT / "tests" / "conformance" / "pom.xml"
# The last patch of each release line that a cluster can be migrated from; `newest` asks Maven
# whether there is a later one.
RELEASES = ("4.0.2", "4.1.2", "4.2.1", "4.3.1")
TARGET = "4.2.1"
LOGGING = ("log4j-slf4j-impl", "log4j-api", "log4j-core")
FETCH_S_MAX = 600


class Missing(Exception):
    """Something that this machine lacks: Java, Maven or the jars. The text says which."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a node runs: Ottla, or a version of Apache Kafka."""

    kafka: str | None = None

    @property
    def is_kafka(self) -> bool:
        return self.kafka is not None

    def __str__(self) -> str:
        return "ottla" if self.kafka is None else f"kafka-{self.kafka}"


OTTLA = Kind()
KAFKA = Kind(TARGET)


def kafka(version: str) -> Kind:
    return Kind(version)


def jars_of(version: str) -> Path:
    """Return the directory with the jars of a version of Kafka; fetch them once.

    Raises:
        Missing: no Java, or no jars and no way to fetch them.
    """
    if shutil.which("java") is None:
        raise Missing("java is not installed; Apache Kafka cannot run")
    jars = ROOT / "build" / ("kafka" if version == TARGET else f"kafka-{version}")
    if not (jars / f"kafka-streams-{version}.jar").exists():
        if shutil.which("mvn") is None:
            raise Missing(f"Apache Kafka {version} is not in {jars.name}, and there is no mvn")
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        done = _maven(*goal, f"-Dkafka.version={version}")
        if done.returncode != 0:
            raise Missing(f"Maven could not fetch Apache Kafka {version}: {done.stdout[-300:]}")
    return jars


def classpath(version: str) -> str:
    """Return the class path of a version of Kafka. Raises Missing, as `jars_of`."""
    return f"{jars_of(version)}/*"


def logging_path() -> str:
    """Return the class path by which a server's log reaches its output; empty without Maven."""
    jars = ROOT / "build" / "kafka-logging"
    if len(list(jars.glob("*.jar"))) < len(LOGGING) and shutil.which("mvn") is not None:
        for name in LOGGING:
            artifact = f"org.apache.logging.log4j:{name}:2.25.4"
            _maven("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={jars}")
    return f"{jars}/*"


def need(*versions: str) -> None:
    """Skip a test, with a reason, where these versions of Kafka cannot run."""
    for version in versions or (TARGET,):
        try:
            jars_of(version)
        except Missing as missing:
            pytest.skip(str(missing))


def newest() -> str:
    """Return the newest release of Kafka that Maven knows; the last of `RELEASES` without Maven."""
    if shutil.which("mvn") is None:
        return RELEASES[-1]
    plugin = "org.codehaus.mojo:versions-maven-plugin:2.18.0:display-property-updates"
    found = re.search(r"kafka\.version\}.*-> (\d+\.\d+\.\d+)", _maven(plugin).stdout)
    return found[1] if found else RELEASES[-1]


def _maven(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["mvn", "-B", "-f", str(POM), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S_MAX, check=False)
