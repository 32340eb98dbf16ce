"""The walk through docs/production.md works as written, on three addresses of one machine.

Each machine of the page is a directory. Blocks of the language `sh` run in the administrator's
directory, `bash` on each machine, in their order; `console` needs root and systemd, and its effect
is imitated: `install` and `systemctl` become files and processes.
"""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.free_ports import free_ports
from tests.patience import SECONDS_MAX

PAGE = Path(__file__).parents[2] / "docs" / "production.md"
MACHINES = (1, 2, 3)


class Walk:
    """The administrator's computer and three machines, with the page's names replaced."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ports = dict(zip(("9092", "9093", "9094", "9404"), free_ports(4), strict=True))
        self.nodes: dict[int, subprocess.Popen[bytes]] = {}
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "OTTLA_PROFILES": str(root / "profiles.toml"),
        }

    def blocks(self, heading: str, language: str) -> list[str]:
        """Return the blocks of a section; the page's hosts and ports become those of the test."""
        section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        blocks = re.findall(rf"```{language}\n(.*?)```", section, re.S)
        assert blocks, f"{heading} has no block of {language}"
        return [self.replaced(block) for block in blocks]

    def replaced(self, text: str) -> str:
        text = re.sub(r"kafka-(\d|\$n)\.example\.org", r"127.0.0.1\1", text)
        for port, free in self.ports.items():
            text = text.replace(f":{port}", f":{free}")
        return text

    def machine(self, number: int) -> Path:
        return self.root / f"machine-{number}"

    def there(self, text: str, number: int) -> str:
        """Replace the directories of a machine."""
        machine = self.machine(number)
        return text.replace("/etc/ottla", f"{machine}/etc").replace(
            "/var/lib/ottla", f"{machine}/data"
        )

    def run(self, script: str, directory: Path | None = None) -> str:
        done = self.try_run(script, directory)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def try_run(
        self, script: str, directory: Path | None = None
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", script],
            cwd=directory or self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )

    def start(self, number: int) -> None:
        machine = self.machine(number)
        with (machine / "log").open("ab") as log:
            self.nodes[number] = subprocess.Popen(
                ["ottla", "server", machine / "etc" / "server.properties"],
                env=self.environment,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def stop(self, number: int) -> int:
        node = self.nodes.pop(number)
        node.send_signal(signal.SIGTERM)
        return node.wait(SECONDS_MAX)

    def logs(self) -> str:
        return "\n".join((self.machine(n) / "log").read_text()[-2000:] for n in MACHINES)


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    walk = Walk(tmp_path)
    try:
        yield walk
    finally:
        for node in walk.nodes.values():
            node.kill()
            node.wait()


def prepare(walk: Walk) -> None:
    """Do sections 2 to 5: certificates, settings, format and start."""
    (certificates,) = walk.blocks("2. Certificates", "sh")
    walk.run(certificates)
    (settings,) = walk.blocks("3. Settings", "properties")
    (ids,) = walk.blocks("4. Format", "sh")
    (formatting,) = walk.blocks("4. Format", "bash")
    walk.run(ids)
    assert (walk.root / "admin.password").stat().st_mode & 0o077 == 0
    for number in MACHINES:
        machine = walk.machine(number)
        (machine / "etc").mkdir(parents=True)
        certs = walk.root / "certs"
        (machine / "etc" / "ca.pem").write_bytes((certs / "ca.pem").read_bytes())
        (machine / "etc" / "node.pem").write_bytes((certs / f"kafka-{number}.pem").read_bytes())
        head, _, rest = settings.partition("process.roles")
        head = head.replace("node.id=1", f"node.id={number}").replace(
            "127.0.0.11", f"127.0.0.1{number}"
        )
        (machine / "etc" / "server.properties").write_text(
            walk.there(f"{head}process.roles{rest}", number)
        )
        for name in ("cluster.env", "users"):
            (machine / name).write_bytes((walk.root / name).read_bytes())
        walk.run(walk.there(formatting, number), machine)
        walk.start(number)


def wait_healthy(walk: Walk, look: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while (done := walk.try_run(f"export OTTLA_PROFILE=admin\n{look}")).returncode:
        assert time.monotonic() < deadline, f"{done.stdout}{done.stderr}\n{walk.logs()}"
        time.sleep(0.2)


def test_walk_through_the_production_page(walk: Walk) -> None:
    prepare(walk)
    (look,) = walk.blocks("6. First look", "sh")
    profile, _, looks = look.partition("export OTTLA_PROFILE=admin\n")
    walk.run(profile)
    wait_healthy(walk, "ottla cluster health")
    shown = walk.run(f"export OTTLA_PROFILE=admin\n{looks}")
    assert "3 voters" in shown and "problem" not in shown
    grant, use = walk.blocks("7. A topic, a user, and its rights", "sh")
    assert "allow" in walk.run(f"export OTTLA_PROFILE=admin\n{grant}")
    assert walk.run(use).splitlines()[-1] == "order 1"
    (scrape,) = walk.blocks("8. Monitoring", "yaml")
    for target in re.findall(r'"(127[^"]+)"', scrape):
        with urllib.request.urlopen(f"http://{target}/metrics", timeout=SECONDS_MAX) as reply:
            assert b"ottla_" in reply.read()
    (healthy,) = walk.blocks("9. The first rolling restart", "sh")
    for number in MACHINES:
        assert walk.stop(number) == 0
        walk.start(number)
        wait_healthy(walk, healthy)


def test_client_without_a_password_or_certificate_is_refused(walk: Walk) -> None:
    prepare(walk)
    clients = f"127.0.0.11:{walk.ports['9092']}"
    nodes = f"127.0.0.11:{walk.ports['9094']}"
    (look,) = walk.blocks("6. First look", "sh")
    walk.run(look.partition("export OTTLA_PROFILE=admin\n")[0])
    wait_healthy(walk, "ottla cluster health")
    trust = "-X security.protocol=SSL -X ssl.ca.location=certs/ca.pem"
    for address in (clients, nodes):
        refused = walk.try_run(f"ottla topic list -b {address} {trust}")
        assert refused.returncode == 1, refused.stdout
    wrong = "-X sasl.password=wrong --profile admin"
    refused = walk.try_run(f"ottla topic list {wrong}")
    assert refused.returncode == 1 and "invalid credentials" in refused.stderr
