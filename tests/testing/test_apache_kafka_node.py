"""A node of Apache Kafka is started and stopped; a small program stands for Java."""

import sys
from pathlib import Path
from socket import create_connection

import pytest

from ottla.testing.apache_kafka import run_apache_kafka

JAVA = f"""#!{sys.executable}
import re, socket, sys
from pathlib import Path
if "kafka.tools.StorageTool" not in sys.argv:
    port = int(re.search(r"PLAINTEXT://127.0.0.1:(\\d+)", Path(sys.argv[-1]).read_text())[1])
    server = socket.create_server(("127.0.0.1", port))
    print("classpath", sys.argv[sys.argv.index("-cp") + 1], flush=True)
    while True:
        server.accept()
"""


def test_apache_kafka_is_yielded_once_its_port_accepts_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text(JAVA)
    java.chmod(0o755)
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "kafka_2.13-4.2.1.jar").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("OTTLA_KAFKA_JARS", "jars")
    with run_apache_kafka(directory=tmp_path / "kafka") as kafka:
        host, port = kafka.bootstrap.split(":")
        create_connection((host, int(port))).close()
        assert f"classpath {tmp_path / 'jars'}/*" in kafka.output()
    with pytest.raises(ConnectionRefusedError):
        create_connection((host, int(port)))
