"""Where a node keeps its data, by its settings."""

from pathlib import Path

import pytest

from ottla.config.layers import Layers
from ottla.config.loading import load
from ottla.config.problems import ConfigError
from ottla.node.broker.cordons import Cordons
from ottla.node.directories.node_directories import all_directories, cordoned_directories
from ottla.node.metrics.gauges import directory_families
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


def test_disk_rejects_a_relative_path() -> None:
    with pytest.raises(ValueError, match="absolute"):
        RealDisk().make_dirs("not/absolute")


def cordoned(*lines: str) -> frozenset[str]:
    return cordoned_directories(load(FILE + "\n".join(lines), {}, []).broker)


def test_cordoned_directories_are_some_or_all_of_the_log_directories() -> None:
    assert cordoned("log.dirs=/b,/a") == frozenset()
    assert cordoned("log.dirs=/b,/a", "cordoned.log.dirs=/a") == {"/a"}
    assert cordoned("log.dirs=/b,/a", "cordoned.log.dirs=*") == {"/a", "/b"}
    assert cordoned("log.dir=/b", "cordoned.log.dirs=/b") == {"/b"}


@pytest.mark.parametrize("value", ["/c", "/a,/c", "*,/a"])
def test_cordoned_directory_that_is_no_log_directory_is_rejected(value: str) -> None:
    with pytest.raises(ConfigError, match=r"cordoned\.log\.dirs"):
        cordoned("log.dirs=/b,/a", f"cordoned.log.dirs={value}")


class Directory:
    """The part of a log directory that `Cordons` uses."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_cordoned = False


def test_changed_cordons_are_applied_and_reported() -> None:
    reports: list[None] = []
    a, b = Directory("/a"), Directory("/b")
    cordons = Cordons([a, b], lambda: reports.append(None))  # type: ignore[list-item]

    def apply(value: str) -> tuple[bool, bool, int]:
        text = FILE + f"log.dirs=/b,/a\ncordoned.log.dirs={value}"
        cordons.apply(load(text, {}, []).broker, Layers())
        return a.is_cordoned, b.is_cordoned, len(reports)

    assert apply("") == (False, False, 0)
    assert apply("/a") == (True, False, 1)
    assert apply("/a") == (True, False, 1)
    assert apply("/b") == (False, True, 2)
    assert apply("*") == (True, True, 3)


class Offline(Directory):
    is_failed = True


class Online(Directory):
    is_failed = False


def test_metrics_count_offline_and_cordoned_directories() -> None:
    cordoned = Online("/b")
    cordoned.is_cordoned = True
    found = {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in directory_families([Online("/a"), cordoned, Offline("/c")], ["/d"])
    }
    name = "kafka_log_logmanager_"
    assert found[f"{name}offlinelogdirectorycount"] == [((), 2)]
    assert found[f"{name}cordonedlogdirectorycount"] == [((), 1)]
    assert [value for _, value in found[f"{name}logdirectoryoffline"]] == [0, 0, 1, 1]
    assert found[f"{name}logdirectorycordoned"][1] == ((("logDirectory", "/b"),), 1)
