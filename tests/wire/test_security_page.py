"""The walk through docs/security.md works as written, on other ports."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.free_ports import free_ports
from tests.patience import SECONDS_MAX

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def blocks(language: str, ports: list[int]) -> list[str]:
    text = PAGE.read_text().partition("## Ten minutes")[2].partition("\n## ")[0]
    for old, new in zip(("9093", "9094"), ports, strict=True):
        text = text.replace(old, str(new))
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


def test_ten_minutes_to_mutual_tls_with_acls(tmp_path: Path) -> None:
    ports = free_ports(2)
    certificates, start, use = blocks("sh", ports)
    (settings,) = blocks("properties", ports)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OTTLA_PROFILES": str(tmp_path / "profiles.toml"),
    }

    def run(script: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(certificates)
    (tmp_path / "server.properties").write_text(settings)
    formatting, serving = start.strip().splitlines()
    run(formatting)
    with (tmp_path / "node.log").open("wb") as log:
        node = subprocess.Popen(
            serving.split(), cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=log
        )
    try:
        assert node.stdout is not None
        first = node.stdout.readline()
        assert first.startswith(b"started"), (tmp_path / "node.log").read_text()
        # Without the entry alice may not write.
        profiles, _, rest = use.partition("done\n")
        create, add, produce, consume = rest.strip().splitlines()
        run(f"{profiles}done\n{create}")
        refused = subprocess.run(
            ["bash", "-ec", produce],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert refused.returncode == 1 and "AUTHORIZATION_FAILED" in refused.stderr
        run(f"{add}\n{produce}")
        assert run(consume) == "hello\n"
    finally:
        node.send_signal(signal.SIGTERM)
        node.wait(SECONDS_MAX)
        assert node.stdout is not None
        node.stdout.close()
