"""A whole node whose disk fails: it exits, and does not mark its directory as clean."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from test_nodes_in_process import client, create_topic, format_one, settings, wait_unfenced

from ottla.node.handle import start_node
from ottla.node.ports import system_ports
from ottla.protocol.faults import StorageFailed
from ottla.runtime.ports import Committer, Syncable
from ottla.server.listener import ServerSettings
from ottla.storage.directory.clean_shutdown import FILE_NAME

DRAIN_S = ServerSettings().drain_ms / 1000


class Breakable:
    """A committer on which every sync fails once it is broken."""

    def __init__(self, directory: str, own: Committer) -> None:
        self._directory, self._own = directory, own
        self.is_broken = False

    async def commit(self, files: Sequence[Syncable]) -> None:
        if self.is_broken:
            raise StorageFailed(self._directory, "Input/output error")
        await self._own.commit(files)

    async def close(self) -> None:
        await self._own.close()  # type: ignore[attr-defined]


async def run_until_the_disk_fails(root: Path) -> None:
    loaded = settings(root)
    format_one(loaded)
    own = system_ports()
    made: list[Breakable] = []

    def committer(directory: str) -> Breakable:
        made.append(Breakable(directory, own.committer(directory)))
        return made[-1]

    node = await start_node(loaded, replace(own, committer=committer), start_s_max=60)
    await wait_unfenced(node)
    async with client(node.listen_addr) as connection:
        for each in made:
            each.is_broken = True
        asking = asyncio.ensure_future(create_topic(connection, "orders"))
        # Well below the time that a controlled shutdown gives to waiting requests.
        async with asyncio.timeout(DRAIN_S / 2):
            with pytest.raises(StorageFailed):
                await node.wait_stopped()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    with pytest.raises(StorageFailed):
        await node.shutdown()


def test_node_whose_metadata_sync_fails_exits_without_clean_shutdown_marker(
    tmp_path: Path,
) -> None:
    asyncio.run(run_until_the_disk_fails(tmp_path))
    assert not (tmp_path / "data" / FILE_NAME).exists()
