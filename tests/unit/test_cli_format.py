"""`ottla format` and `ottla --version`: what is written, and what is refused."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.metadata.features import KRAFT_VERSION
from ottla.metadata.metadata_versions import DEFAULT_VERSION, METADATA_VERSION
from ottla.protocol.internal.metadata_cluster import FeatureLevelRecord
from ottla.protocol.internal.metadata_security import UserScramCredentialRecord
from ottla.protocol.types import NodeId
from ottla.protocol.uuids import uuid_text
from ottla.raft.core.log_view import BOOTSTRAP_SNAPSHOT
from ottla.raft.metadata_log import DIRECTORY_NAME
from ottla.raft.snapshots import SnapshotFiles, read_bootstrap
from ottla.runtime.disk import RealDisk
from ottla.storage.directory.meta_properties import read_meta_properties

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
DYNAMIC = "controller.quorum.bootstrap.servers=127.0.0.1:9093\n"
STATIC = "controller.quorum.voters=1@127.0.0.1:9093\n"


class Place:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = [root / "a", root / "b"]
        self.disk = RealDisk()

    def config(self, *, node_id: int = 1, quorum: str = DYNAMIC, roles: str = "") -> Path:
        path = self.root / "server.properties"
        listeners = "CONTROLLER://127.0.0.1:9093,PLAINTEXT://127.0.0.1:9092"
        if roles == "broker":
            listeners = "PLAINTEXT://127.0.0.1:9092"
        path.write_text(
            f"process.roles={roles or 'broker,controller'}\nnode.id={node_id}\n{quorum}"
            f"listeners={listeners}\ncontroller.listener.names=CONTROLLER\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            f"log.dirs={self.data[0]},{self.data[1]}\n"
        )
        return path

    def format(self, *options: str, cluster: str = CLUSTER, **config: object) -> tuple[int, str]:
        path = self.config(**config)  # type: ignore[arg-type]
        arguments = ["format", "--cluster-id", cluster, "--config", str(path), *options]
        done = CliRunner().invoke(app, arguments)
        return done.exit_code, done.output

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and path.name != "server.properties"
        }


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def levels(place: Place) -> dict[str, int]:
    records = read_bootstrap(place.disk, str(place.data[0])) or []
    found = [record.message for record in records]
    return {m.name: m.feature_level for m in found if isinstance(m, FeatureLevelRecord)}


def test_standalone_writes_owner_first_records_and_the_one_voter(place: Place) -> None:
    code, output = place.format("--standalone")
    assert code == 0, output
    metas = [read_meta_properties(place.disk, str(path)) for path in place.data]
    assert all(meta and (meta.node_id, meta.cluster_id) == (1, CLUSTER) for meta in metas)
    ids = [meta.directory_id for meta in metas if meta]
    assert len(set(ids)) == 2
    snapshots = SnapshotFiles(place.disk, f"{place.data[0]}/{DIRECTORY_NAME}")
    snapshots.load()
    assert snapshots.all == [BOOTSTRAP_SNAPSHOT]
    reader = snapshots.open(BOOTSTRAP_SNAPSHOT)
    head = reader.head()
    list(reader.check())
    reader.close()
    assert head.kraft_version == 1 and head.voters is not None
    voter = head.voters.get(NodeId(1))
    assert voter is not None and voter.key.directory_id == ids[0]
    assert [(e.listener, e.host, e.port) for e in voter.endpoints] == [
        ("CONTROLLER", "127.0.0.1", 9093)
    ]
    assert levels(place)[METADATA_VERSION] == int(DEFAULT_VERSION)
    assert KRAFT_VERSION not in levels(place), "the voters keep it themselves"


def test_settings_file_may_be_an_argument_as_for_the_server(place: Place) -> None:
    path = str(place.config())
    done = CliRunner().invoke(app, ["format", path, "--standalone"])
    assert done.exit_code == 0, done.output
    assert read_meta_properties(place.disk, str(place.data[0])) is not None
    for wrong in ([], [path, "--config", path]):
        done = CliRunner().invoke(app, ["format", *wrong, "--standalone"])
        assert done.exit_code == 2 and "server.properties" in done.output


def test_static_voters_get_no_voters_file(place: Place) -> None:
    code, output = place.format(quorum=STATIC)
    assert code == 0, output
    assert sorted(place.files()) == [
        "a/bootstrap.checkpoint",
        "a/meta.properties",
        "b/meta.properties",
    ]


def test_initial_controllers_give_this_node_its_directory(place: Place) -> None:
    mine, other = "AAAAAAAAQAGAAAAAAAAAAQ", "AAAAAAAAQAGAAAAAAAAAAg"
    text = f"1@127.0.0.1:9093:{mine},2@127.0.0.1:9094:{other}"
    code, output = place.format("--initial-controllers", text)
    assert code == 0, output
    meta = read_meta_properties(place.disk, str(place.data[0]))
    assert meta and meta.directory_id and uuid_text(meta.directory_id) == mine


@pytest.mark.parametrize(
    ("options", "config", "said"),
    [
        ([], {}, "--standalone"),
        (["--standalone", "--no-initial-controllers"], {}, "only one"),
        (["--standalone"], {"quorum": STATIC}, "controller.quorum.voters"),
        (["--standalone"], {"roles": "broker"}, "no controller"),
        (["--initial-controllers", "2@h:1:AAAAAAAAQAGAAAAAAAAAAQ"], {}, "not among them"),
        (["--initial-controllers", "1@h:1"], {}, "directory-id"),
        (["--initial-controllers", "1@h:1:AAAAAAAAAAAAAAAAAAAAAA"], {}, "reserved"),
        (["--standalone", "--feature", "nonsense=1"], {}, "nonsense"),
        (["--standalone", "--feature", "group.version"], {}, "name=level"),
        (["--standalone", "--feature", "kraft.version=0"], {}, "kraft.version"),
        (["--standalone", "--release-version", "9.9"], {}, "9.9"),
        (["--standalone", "--add-scram", "SCRAM-SHA-256=[name=alice]"], {}, "password"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    place: Place, options: list[str], config: dict[str, object], said: str
) -> None:
    code, output = place.format(*options, **config)
    assert code == 1
    assert said in output
    assert place.files() == {}, "nothing is written"


def test_a_release_and_a_scram_user_are_written(place: Place) -> None:
    user = "SCRAM-SHA-256=[name=alice,password=open-sesame]"
    code, output = place.format("--standalone", "--release-version", "4.0", "--add-scram", user)
    assert code == 0, output
    assert levels(place)[METADATA_VERSION] < int(DEFAULT_VERSION)
    records = read_bootstrap(place.disk, str(place.data[0])) or []
    assert [
        r.message.name for r in records if isinstance(r.message, UserScramCredentialRecord)
    ] == ["alice"]
    assert "open-sesame" not in output
    assert all(b"open-sesame" not in data for data in place.files().values())


def test_a_formatted_directory_is_not_formatted_again(place: Place) -> None:
    assert place.format("--standalone")[0] == 0
    before = place.files()
    code, output = place.format("--standalone")
    assert code == 1 and "--ignore-formatted" in output
    assert place.files() == before
    assert place.format("--standalone", "--ignore-formatted")[0] == 0
    assert place.files() == before


def test_a_new_disk_is_formatted_beside_the_others(place: Place) -> None:
    assert place.format("--standalone")[0] == 0
    before = place.files()
    (place.data[1] / "meta.properties").unlink()
    code, output = place.format("--standalone", "--ignore-formatted")
    assert code == 0, output
    after = place.files()
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} == {"b/meta.properties"}


@pytest.mark.parametrize(
    ("cluster", "node_id", "said"),
    [("another-cluster", 1, "belongs to cluster"), (CLUSTER, 2, "belongs to node")],
)
def test_a_directory_of_somebody_else_is_never_touched(
    place: Place, cluster: str, node_id: int, said: str
) -> None:
    assert place.format("--standalone")[0] == 0
    (place.data[0] / "meta.properties").unlink()
    before = place.files()
    code, output = place.format(
        "--standalone", "--ignore-formatted", cluster=cluster, node_id=node_id
    )
    assert code == 1 and said in output
    assert place.files() == before, "not even the directory that is free"


def test_bad_configuration_is_reported_with_its_key(place: Place) -> None:
    path = place.root / "server.properties"
    path.write_text("node.id=x\n")
    done = CliRunner().invoke(app, ["format", "-t", CLUSTER, "-c", str(path)])
    assert done.exit_code == 1 and "node.id" in done.output and "process.roles" in done.output


def test_version_needs_none_of_the_broker() -> None:
    code = (
        "import sys; sys.argv = ['ottla', '--version']\n"
        "from ottla.cli.main import main\nmain()\n"
        "print([m for m in sys.modules if m.startswith(('ottla.', 'typer', 'asyncio'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said, modules = done.stdout.splitlines()
    assert said.startswith("ottla ")
    assert modules == "['ottla.cli', 'ottla.cli.main']"


def test_nodes_of_one_machine_are_formatted_together(tmp_path: Path) -> None:
    place = Place(tmp_path)
    code, text = place.format("--nodes", "2", "--standalone")
    assert code == 0, text
    for node_id in (1, 2):
        for data in place.data:
            meta = read_meta_properties(place.disk, str(data / f"node-{node_id}"))
            assert meta is not None
            assert (meta.node_id, meta.cluster_id) == (node_id, CLUSTER)
    first, second = (place.data[0] / f"node-{each}" / DIRECTORY_NAME for each in (1, 2))
    assert first.exists()
    assert not second.exists(), "only the first node is a voter"


def test_nodes_with_one_port_are_not_formatted(tmp_path: Path) -> None:
    place = Place(tmp_path)
    code, text = place.format("--nodes", "2", "--standalone", "--port-step", "1")
    assert code == 1
    assert "would both use port 9093" in text
    assert place.files() == {}
