"""The files in deploy: what of them can be run or checked without a container engine."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.free_ports import free_ports
from up_process import SECONDS_MAX

from ottla.config.loading import load

DEPLOY = Path(__file__).parents[2] / "deploy"
IMAGE_SETTINGS = (DEPLOY / "container" / "server.properties").read_text()


def test_start_script_formats_a_new_node_once_and_serves(tmp_path: Path) -> None:
    clients, controllers, metrics = free_ports(3)
    data = tmp_path / "data"
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",
        "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{clients},CONTROLLER://127.0.0.1:{controllers}",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{clients}",
        "KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": f"127.0.0.1:{controllers}",
        "KAFKA_LOG_DIRS": str(data),
        "KAFKA_OTTLA_METRICS_LISTENER": f"127.0.0.1:{metrics}",
        "CLUSTER_ID": "3bNfWqRkQo6UWx2Hk1ZfRg",
    }
    seen = []
    for _ in range(2):
        process = subprocess.Popen(
            [DEPLOY / "container" / "start", DEPLOY / "container" / "server.properties"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert process.stdout is not None
            said = ""
            while "started node 1" not in said:
                line = process.stdout.readline()
                assert line, said
                said += line
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS_MAX) == 0
        finally:
            process.kill()
            process.communicate()
        seen.append("formatted:" in said)
    assert seen == [True, False]
    assert "cluster.id=3bNfWqRkQo6UWx2Hk1ZfRg" in (data / "meta.properties").read_text()


def test_unit_is_valid(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    text = (DEPLOY / "ottla.service").read_text()
    unit = tmp_path / "ottla.service"
    unit.write_text(text.replace("/opt/ottla/bin/ottla", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    # Complaints about other units of the machine are not ours.
    assert "ottla.service" not in done.stderr, done.stderr
    assert "Type=notify" in text and "ProtectSystem=strict" in text


def environments() -> dict[str, dict[str, str]]:
    """The variables of each node of the compose file."""
    text = (DEPLOY / "compose" / "compose.yaml").read_text()
    found = yaml.safe_load(re.sub(r"\$\{OTTLA_PASSWORD:\?[^}]*\}", "secret", text))
    return {
        name: {key: str(value) for key, value in service["environment"].items()}
        for name, service in found["services"].items()
        if name != "setup"
    }


@pytest.mark.parametrize("name", ["node-1", "node-2", "node-3"])
def test_settings_of_the_compose_file_are_known_and_secure(name: str) -> None:
    loaded = load(IMAGE_SETTINGS, environments()[name])
    assert loaded.warnings == ()
    assert f"node-{loaded.broker.node_id}" == name
    assert len(loaded.broker.controller_quorum_voters) == 3
    assert {each.protocol.name for each in loaded.listeners.all} == {"SASL_SSL"}


def manifests() -> dict[str, dict[str, object]]:
    text = (DEPLOY / "kubernetes" / "ottla.yaml").read_text()
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in yaml.safe_load_all(text)}


def test_manifests_fit_together() -> None:
    found = manifests()
    nodes: dict = found["StatefulSet/ottla"]["spec"]  # type: ignore[assignment,type-arg]
    labels = nodes["template"]["metadata"]["labels"]
    assert nodes["selector"]["matchLabels"] == labels
    for name in ("Service/ottla", "Service/ottla-nodes"):
        assert found[name]["spec"]["selector"] == labels  # type: ignore[index]
    assert f"Service/{nodes['serviceName']}" in found
    (container,) = nodes["template"]["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
        assert container[probe]["httpGet"]["port"] in ports
    volumes = {each["name"] for each in nodes["template"]["spec"]["volumes"]}
    volumes |= {each["metadata"]["name"] for each in nodes["volumeClaimTemplates"]}
    assert {each["name"] for each in container["volumeMounts"]} == volumes


def test_settings_of_the_manifests_are_known() -> None:
    found = manifests()
    (script,) = found["StatefulSet/ottla"]["spec"]["template"]["spec"]["containers"][0]["args"]  # type: ignore[index]
    shown = subprocess.run(
        ["sh", "-euc", script.replace("exec ottla-start", "env; :")],
        env={"POD_NAME": "ottla-2", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    variables = dict(line.split("=", 1) for line in shown.stdout.splitlines())
    text = found["ConfigMap/ottla"]["data"]["server.properties"]  # type: ignore[index]
    loaded = load(text, variables)
    assert loaded.warnings == () and loaded.broker.node_id == 3
    assert variables["KAFKA_ADVERTISED_LISTENERS"].startswith(
        "PLAINTEXT://ottla-2.ottla-nodes:9092"
    )
    voters = loaded.broker.controller_quorum_voters
    assert [each.partition("@")[0] for each in voters] == ["1", "2", "3"]
