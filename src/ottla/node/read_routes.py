"""The reading APIs of a broker, put together: records, offsets, epochs, directories."""

from typing import TYPE_CHECKING

from ottla.api.fetch import FetchHandlers
from ottla.api.fetch_read import ReadSources
from ottla.api.fetch_sessions import EPOCH_MAX, Sessions
from ottla.api.list_offsets import ListOffsetsHandlers
from ottla.api.log_dirs import AlterLogDirsHandler, LogDirsHandler
from ottla.api.offset_for_leader_epoch import EpochHandlers
from ottla.api.read_replica import RACK_AWARE
from ottla.api.routes import Route
from ottla.metadata.watch import ImageWatch
from ottla.node.directories import log_directories
from ottla.node.hosting import Hosting

if TYPE_CHECKING:
    from ottla.node.build import Ground


def read_routes(ground: "Ground", watch: ImageWatch, hosting: Hosting) -> tuple[Route, ...]:
    """Return their routes. All listeners of a broker share the fetch sessions."""
    config, ports = ground.loaded.broker, ground.ports
    partitions = hosting.partitions
    sources = ReadSources(
        partitions,
        lambda: watch.image,
        config.replica_selector_class == RACK_AWARE,
        throttles=hosting.host.throttles,
    )
    sessions = Sessions(
        config.max_incremental_fetch_session_cache_slots,
        lambda: 1 + ports.random.below(EPOCH_MAX - 1),
    )
    return (
        *FetchHandlers(
            sources, sessions, ports.clock, config.fetch_max_bytes, ground.meters.topics
        ).routes(),
        *ListOffsetsHandlers(partitions).routes(),
        *EpochHandlers(partitions).routes(),
        *LogDirsHandler(log_directories(config), ground.log_directories, ports.disk).routes(),
        *AlterLogDirsHandler(hosting.moves).routes(),
    )
