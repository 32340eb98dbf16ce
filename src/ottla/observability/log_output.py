"""The log of a node: lines of text, or JSON objects, on standard error.

    log.format=json    {"time": "2026-01-31T12:00:00.123Z", "level": ..., "logger": ..., ...}
    log.level=INFO     of all loggers
    log.levels=ottla.raft=DEBUG,ottla.server=WARN    of some; a package includes its modules

Levels have Kafka's names (`ottla.observability.loggers`). At run time they are changed by
AlterConfigs of broker loggers.
"""

import json
import logging
import time
from collections.abc import Iterable

from ottla.observability.loggers import LEVELS

TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


class JsonFormatter(logging.Formatter):
    """One JSON object per line; control characters cannot break a line or forge another."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record; ``error`` has the traceback, if there is one."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        found = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["error"] = self.formatException(record.exc_info)
        return json.dumps(found)


def configure_log(log_format: str, level: str, levels: Iterable[str]) -> None:
    """Apply the settings to the process; values were validated with the configuration."""
    root = logging.getLogger()
    root.setLevel(LEVELS[level])
    formatter = JsonFormatter() if log_format == "json" else logging.Formatter(TEXT_FORMAT)
    for handler in root.handlers:
        handler.setFormatter(formatter)
    for item in levels:
        name, _, wanted = item.partition("=")
        logging.getLogger(name.strip()).setLevel(LEVELS[wanted.strip().upper()])
