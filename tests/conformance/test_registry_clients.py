"""Clients of schema registries in Go, JavaScript and Java against the registry of a node.

Each program checks what it gets and prints ``all passed``. Python's client is in
``tests/wire/test_schema_registry.py``; the rules that it runs are here, as they need more packages.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from client_drivers import NODE_MODULES

from kafka_jars import registry_classpath
from ottla.testing.cluster import Cluster, run_cluster

pytestmark = pytest.mark.timeout(1200)

HERE = Path(__file__).parent / "registry_clients"
BUILD = Path(__file__).parents[2] / "build"
GO_MODULE = "github.com/twmb/franz-go/pkg/sr@v1.8.0"
PACKAGES = ("@kafkajs/confluent-schema-registry@4.1.0", "@confluentinc/schemaregistry@1.10.1")
PYTHON_PACKAGES = ("confluent-kafka[avro,json,protobuf,schemaregistry,rules]==2.16.0",)
SECONDS_MAX = 600


@pytest.fixture
def node() -> Iterator[Cluster]:
    """A registry for each program: they count what they have registered."""
    with run_cluster(1, schema_registry=True) as cluster:
        yield cluster


def run(*command: str, where: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, cwd=where, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )


def check(done: "subprocess.CompletedProcess[str]") -> None:
    assert "all passed" in done.stdout, (done.stdout + done.stderr)[-4000:]


@pytest.mark.external
def test_client_of_franz_go(node: Cluster) -> None:
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    home = BUILD / "franz-go-sr"
    if not (home / "client").exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        shutil.copy(HERE / "main.go", home)
        for command in (("go", "mod", "init", "ottla/registry"), ("go", "get", GO_MODULE)):
            done = run(*command, where=home)
            if done.returncode != 0:
                pytest.skip(f"franz-go cannot be fetched: {done.stderr[-300:]}")
        built = run("go", "build", "-o", "client", ".", where=home)
        assert built.returncode == 0, built.stderr
    check(run(str(home / "client"), node.schema_registry_url))


@pytest.mark.external
@pytest.mark.parametrize("script", ["kafkajs.mjs", "confluent.mjs"])
def test_clients_of_javascript(node: Cluster, script: str) -> None:
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    home = NODE_MODULES.parent / "registry-node"
    if not all((home / "node_modules" / name.rpartition("@")[0]).exists() for name in PACKAGES):
        home.mkdir(parents=True, exist_ok=True)
        done = run("npm", "install", "--no-audit", "--no-fund", "--silent", *PACKAGES, where=home)
        if done.returncode != 0:
            pytest.skip(f"npm could not fetch the packages: {done.stderr[-300:]}")
    # Imports of a module are looked up from where it stands: beside the packages.
    shutil.copy(HERE / script, home)
    check(run("node", str(home / script), node.schema_registry_url))


@pytest.mark.jvm
def test_java_client_of_confluent(node: Cluster) -> None:
    jars = registry_classpath()
    program = str(HERE / "RegistryClient.java")
    check(run("java", "-cp", jars, program, node.schema_registry_url))


@pytest.mark.external
def test_rules_that_the_client_of_python_runs(node: Cluster) -> None:
    home = BUILD / "registry-python"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        shutil.rmtree(home, ignore_errors=True)
        made = run(sys.executable, "-m", "venv", str(home))
        assert made.returncode == 0, made.stderr
        done = run(str(python), "-m", "pip", "install", "--quiet", *PYTHON_PACKAGES)
        if done.returncode != 0:
            pytest.skip(f"pip could not fetch the packages: {done.stderr[-300:]}")
        (home / "ready").touch()
    check(run(str(python), str(HERE / "rules.py"), node.schema_registry_url))
