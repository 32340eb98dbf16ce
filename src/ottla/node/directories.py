"""Which directories a node has, by its settings."""

import os

from ottla.config.generated import BrokerConfig


def log_directories(config: BrokerConfig) -> tuple[str, ...]:
    """Return ``log.dirs``, or ``log.dir`` where that is not set; absolute paths, each once.

    A relative one is meant from where the process was started, as in Kafka.
    """
    return tuple(dict.fromkeys(map(os.path.abspath, config.log_dirs or config.log_dir)))


def metadata_directory(config: BrokerConfig) -> str:
    """Return where the metadata log lives: its own directory, or the first of the others."""
    own = config.metadata_log_dir
    return os.path.abspath(own) if own else log_directories(config)[0]


def all_directories(config: BrokerConfig) -> tuple[str, ...]:
    """Return every directory that has a ``meta.properties``, the metadata log's first."""
    return tuple(dict.fromkeys((metadata_directory(config), *log_directories(config))))
