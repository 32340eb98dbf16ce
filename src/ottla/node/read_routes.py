"""The reading APIs of a broker, put together: records, offsets, epochs, directories."""

from typing import TYPE_CHECKING, Final

from ottla.api.fetch import FetchHandlers
from ottla.api.fetch_read import ReadSources
from ottla.api.fetch_sessions import EPOCH_MAX, Sessions
from ottla.api.late_routes import Promise, late_routes
from ottla.api.read_replica import RACK_AWARE
from ottla.api.routes import Route
from ottla.metadata.image_watch import ImageWatch
from ottla.node.directories import log_directories
from ottla.node.hosting import Hosting
from ottla.protocol.api_keys import ApiKey
from ottla.runtime.lazy import LazyModule

if TYPE_CHECKING:
    from ottla.api import list_offsets, log_dirs, offset_for_leader_epoch
    from ottla.node.build import NodeContext
else:
    list_offsets = LazyModule("ottla.api.list_offsets")
    log_dirs = LazyModule("ottla.api.log_dirs")
    offset_for_leader_epoch = LazyModule("ottla.api.offset_for_leader_epoch")

DESCRIBE_LOG_DIRS: Final = Promise(ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 4))


def read_routes(context: "NodeContext", watch: ImageWatch, hosting: Hosting) -> tuple[Route, ...]:
    """Return their routes. All listeners of a broker share the fetch sessions."""
    config, ports = context.loaded.broker, context.ports
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
            sources, sessions, ports.clock, config.fetch_max_bytes, context.meters.topics
        ).routes(),
        *late_routes(
            lambda: list_offsets.ListOffsetsHandlers(partitions).routes(), ApiKey.LIST_OFFSETS
        ),
        *late_routes(
            lambda: offset_for_leader_epoch.EpochHandlers(partitions).routes(),
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ),
        *late_routes(
            lambda: log_dirs.LogDirsHandler(
                log_directories(config), context.log_directories, ports.disk
            ).routes(),
            DESCRIBE_LOG_DIRS,
        ),
        *late_routes(
            lambda: log_dirs.AlterLogDirsHandler(hosting.moves).routes(),
            ApiKey.ALTER_REPLICA_LOG_DIRS,
        ),
    )
