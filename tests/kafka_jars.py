"""Apache Kafka's jars: fetched through Maven once, kept in ``build/kafka`` between runs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
JARS = ROOT / "build" / "kafka"
POM = ROOT / "tests" / "conformance" / "pom.xml"


def classpath() -> str:
    """Return the class path; skip with a reason where Java, Maven or the jars are missing."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed; Apache Kafka's own classes cannot run")
    if not list(JARS.glob("kafka-streams-*.jar")):
        command = ["mvn", "-q", "-B", "-f", str(POM)]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={JARS}"]
        done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
        if done.returncode != 0:
            pytest.skip(f"Maven could not fetch Apache Kafka: {done.stdout[-300:]}")
    return f"{JARS}/*"
