"""Which directories a node has, by its settings."""

from ottla.config.generated import BrokerConfig


def log_directories(config: BrokerConfig) -> tuple[str, ...]:
    """Return ``log.dirs``, or ``log.dir`` where that is not set; absolute paths, each once."""
    return tuple(dict.fromkeys(config.log_dirs or config.log_dir))


def metadata_directory(config: BrokerConfig) -> str:
    """Return where the metadata log lives: its own directory, or the first of the others."""
    return config.metadata_log_dir or log_directories(config)[0]


def all_directories(config: BrokerConfig) -> tuple[str, ...]:
    """Return every directory that has a ``meta.properties``, the metadata log's first."""
    return tuple(dict.fromkeys((metadata_directory(config), *log_directories(config))))
