"""The directories of a node, from its settings."""

import os

from ottla.config.checks import ALL_DIRECTORIES
from ottla.config.generated import BrokerConfig


def log_directories(config: BrokerConfig) -> tuple[str, ...]:
    """Return ``log.dirs``, or ``log.dir`` where that is not set; absolute paths, each once.

    A relative path is relative to the working directory of the process, as in Kafka.
    """
    return tuple(dict.fromkeys(map(os.path.abspath, config.log_dirs or config.log_dir)))


def cordoned_directories(config: BrokerConfig) -> frozenset[str]:
    """Return the absolute paths of ``cordoned.log.dirs``."""
    if ALL_DIRECTORIES in config.cordoned_log_dirs:
        return frozenset(log_directories(config))
    return frozenset(map(os.path.abspath, config.cordoned_log_dirs))


def metadata_directory(config: BrokerConfig) -> str:
    """Return the directory of the metadata log: its own, or the first log directory."""
    own = config.metadata_log_dir
    return os.path.abspath(own) if own else log_directories(config)[0]


def all_directories(config: BrokerConfig) -> tuple[str, ...]:
    """Return every directory with a ``meta.properties``, that of the metadata log first."""
    return tuple(dict.fromkeys((metadata_directory(config), *log_directories(config))))
