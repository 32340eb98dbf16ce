"""Apache Kafka's jars: fetched through Maven once, kept in ``build/kafka`` between runs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
JARS = ROOT / "build" / "kafka"
POM = ROOT / "tests" / "conformance" / "pom.xml"


CLIENT_JARS = ROOT / "build" / "kafka-clients"
CLIENT_POM = ROOT / "tests" / "conformance" / "clients-pom.xml"
REGISTRY_JARS = ROOT / "build" / "registry-clients"
REGISTRY_POM = ROOT / "tests" / "conformance" / "registry_clients" / "registry-pom.xml"


def client_classpath() -> str:
    """Return the class path of the newest client; skip with a reason where it cannot be had."""
    return _fetched(CLIENT_JARS, CLIENT_POM, "kafka-clients-*.jar")


def classpath() -> str:
    """Return the class path; skip with a reason where Java, Maven or the jars are missing."""
    return _fetched(JARS, POM, "kafka-streams-*.jar")


def registry_classpath() -> str:
    """Return the class path of Confluent's registry client; skip with a reason without it."""
    return _fetched(REGISTRY_JARS, REGISTRY_POM, "flink-sql-avro-confluent-registry-*.jar")


def _fetched(jars: Path, pom: Path, pattern: str) -> str:
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed; Apache Kafka's own classes cannot run")
    if not list(jars.glob(pattern)):
        command = ["mvn", "-q", "-B", "-f", str(pom)]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
        if done.returncode != 0:
            pytest.skip(f"Maven could not fetch Apache Kafka: {done.stdout[-300:]}")
    return f"{jars}/*"
