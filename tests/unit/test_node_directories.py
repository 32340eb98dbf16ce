"""Where a node keeps its data, by its settings."""

from pathlib import Path

import pytest

from ottla.config.loading import load
from ottla.node.directories import all_directories
from ottla.runtime.disk import RealDisk

FILE = """process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://localhost:0,CONTROLLER://localhost:0
controller.listener.names=CONTROLLER
controller.quorum.voters=1@localhost:9093
"""


def directories(*lines: str) -> tuple[str, ...]:
    return all_directories(load(FILE + "\n".join(lines), {}, []).broker)


def test_relative_directory_is_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert directories("log.dirs=data,./data,more/../other", "metadata.log.dir=meta") == (
        str(tmp_path / "meta"),
        str(tmp_path / "data"),
        str(tmp_path / "other"),
    )


def test_metadata_log_is_in_the_first_directory_by_default() -> None:
    assert directories("log.dirs=/b,/a") == ("/b", "/a")
    assert directories("log.dirs=/b,/a", "metadata.log.dir=/a") == ("/a", "/b")


@pytest.mark.timeout(5)
def test_disk_rejects_a_relative_path() -> None:
    with pytest.raises(ValueError, match="absolute"):
        RealDisk().make_dirs("not/absolute")
