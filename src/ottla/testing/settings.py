"""The settings that a test gives its cluster: as text, checked, and those of features in a word."""

from collections.abc import Mapping
from pathlib import Path

from ottla.config.loading import Loaded


def settings_texts(config: Mapping[str, object] | None) -> dict[str, str]:
    """Return settings as text; True is ``true``."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in (config or {}).items()
    }


def check_known(loaded: Loaded) -> None:
    """Check that every key means something. A node only warns; a test would pass by mistake.

    Raises:
        ValueError: a key is unknown; the message has the one that may be meant.
    """
    unknown = [str(each) for each in loaded.warnings if each.message.startswith("unknown key")]
    if unknown:
        raise ValueError("config: " + "; ".join(unknown))


def tiering_settings(directory: Path, brokers: int) -> dict[str, str]:
    """Return the settings of tiered storage in a directory, for topics that switch it on."""
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "directory",
        "rsm.config.directory": str(directory),
        "rlmm.config.remote.log.metadata.topic.replication.factor": str(min(3, brokers)),
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "remote.log.manager.task.interval.ms": "200",
        "log.retention.check.interval.ms": "200",
    }
