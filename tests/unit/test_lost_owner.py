"""A directory with data whose ``meta.properties`` is lost: nothing formats it; it is restored."""

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.config.loading import load
from ottla.node.directories.start_errors import start_error
from ottla.node.handle import start_node
from ottla.storage.directory.meta_properties import FILE_NAME, MetaPropertiesRefused, NotFormatted

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
OTHER_ID = "AAAAAAAAAAEAAAAAAAAAAg"


class Lost:
    """A node with two log directories that has run once."""

    def __init__(self, root: Path) -> None:
        self.data = [root / "a", root / "b"]
        self.config = root / "server.properties"
        self.text = (
            "process.roles=broker,controller\nnode.id=1\n"
            "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
            "controller.quorum.bootstrap.servers=127.0.0.1:1\n"
            "controller.listener.names=CONTROLLER\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            "log.initial.task.delay.ms=0\n"
            f"log.dirs={self.data[0]},{self.data[1]}\n"
        )
        self.config.write_text(self.text)
        code, output = self.format("--cluster-id", CLUSTER, "--standalone")
        assert code == 0, output
        self.run()
        self.owners = [self.owner(path).read_bytes() for path in self.data]

    def owner(self, path: Path) -> Path:
        return path / FILE_NAME

    def format(self, *options: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["format", "--config", str(self.config), *options])
        return done.exit_code, done.output

    def run(self) -> None:
        """Start the node, and stop it once it serves."""

        async def briefly() -> None:
            node = await start_node(load(self.text))
            await node.shutdown()

        asyncio.run(briefly())

    def files(self) -> dict[str, bytes]:
        return {str(each): each.read_bytes() for each in self.config.parent.rglob("*.p*")}


@pytest.fixture
def lost(tmp_path: Path) -> Lost:
    return Lost(tmp_path)


@pytest.mark.parametrize("which", [0, 1])
def test_restored_file_is_byte_for_byte_the_lost_one(lost: Lost, which: int) -> None:
    (lost.data[1] / "orders-0").mkdir()  # the second directory has data as well
    path = lost.owner(lost.data[which])
    path.unlink()
    code, output = lost.format("--restore")
    assert code == 0, output
    assert path.read_bytes() == lost.owners[which]
    lost.run()


def test_node_with_one_directory_needs_the_cluster_id(lost: Lost) -> None:
    lost.owner(lost.data[0]).unlink()
    lost.config.write_text(lost.text.replace(f",{lost.data[1]}", ""))
    code, output = lost.format("--restore")
    assert code == 1
    assert "--cluster-id" in output
    # Two ids are registered, and the file of neither directory says which is which.
    code, output = lost.format("--restore", "--cluster-id", CLUSTER)
    assert code == 1
    assert "--directory-id" in output
    own = lost.owners[0].decode().partition("directory.id=")[2].strip()
    code, output = lost.format("--restore", "--cluster-id", CLUSTER, "--directory-id", OTHER_ID)
    assert code == 1
    assert own in output
    assert not lost.owner(lost.data[0]).exists()
    code, output = lost.format("--restore", "--cluster-id", CLUSTER, "--directory-id", own)
    assert code == 0, output
    assert lost.owner(lost.data[0]).read_bytes() == lost.owners[0]


@pytest.mark.parametrize(
    "options",
    [("--standalone",), ("--ignore-formatted", "--standalone"), ("--cluster-id", CLUSTER, "-s")],
)
def test_format_refuses_a_directory_with_data(lost: Lost, options: tuple[str, ...]) -> None:
    lost.owner(lost.data[0]).unlink()
    before = lost.files()
    code, output = lost.format(*options)
    assert code == 1
    assert "__cluster_metadata-0" in output
    assert "ottla format --restore" in " ".join(output.split())
    assert lost.files() == before


def test_format_refuses_a_directory_with_a_partition(lost: Lost) -> None:
    (lost.data[1] / "orders-0").mkdir()
    lost.owner(lost.data[1]).unlink()
    code, output = lost.format("--cluster-id", CLUSTER, "--standalone", "--ignore-formatted")
    assert code == 1
    assert "orders-0" in output


def test_start_does_not_advise_to_format_data(lost: Lost) -> None:
    lost.owner(lost.data[0]).unlink()
    with pytest.raises(MetaPropertiesRefused, match=r"ottla format --restore") as refused:
        lost.run()
    assert not isinstance(refused.value, NotFormatted)
    assert "--standalone" not in start_error(refused.value)


def test_doctor_names_a_directory_without_its_owner(lost: Lost) -> None:
    lost.owner(lost.data[0]).unlink()
    done = CliRunner().invoke(
        app, ["doctor", "--data", str(lost.data[0]), "--bootstrap", "127.0.0.1:1", "-o", "json"]
    )
    assert done.exit_code == 1
    assert "has data (__cluster_metadata-0), but no meta.properties" in done.output


def test_nothing_is_restored_while_nothing_is_lost(lost: Lost) -> None:
    before = lost.files()
    code, output = lost.format("--restore")
    assert code == 1
    assert "every directory with data has its meta.properties" in " ".join(output.split())
    assert lost.files() == before


def test_interrupted_format_is_repeated(tmp_path: Path) -> None:
    lost = Lost(tmp_path)
    for name in ("a", "b"):
        lost.owner(tmp_path / name).unlink()
    for log in (tmp_path / "a" / "__cluster_metadata-0").iterdir():
        if not log.name.endswith("-0000000000.checkpoint"):
            log.unlink()
    code, output = lost.format("--cluster-id", CLUSTER, "--standalone")
    assert code == 0, output
