"""The log of the nodes of one test, for the report of a failure.

Nodes in threads log through Python's logging in the process of the test. Their records of level
INFO are kept here and not passed on: other handlers, such as pytest's own, get warnings and errors
as before.
"""

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

LINES_MAX: Final = 200
_FORMAT: Final = "%(asctime)s %(levelname)s %(threadName)s %(name)s %(message)s"


class NodeLogs:
    """The last lines of the nodes in threads, and the outputs of nodes in processes."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=LINES_MAX)

    def sections(self, outputs: Mapping[int, str]) -> Iterator[tuple[str, str]]:
        """Yield a title and a text for each log that has lines."""
        if self.lines:
            yield "ottla nodes", "\n".join(self.lines)
        for node_id, output in outputs.items():
            if output:
                yield f"ottla node {node_id}", "\n".join(output.splitlines()[-LINES_MAX:])


class _Keeper(logging.Handler):
    """Keeps every record as a line, and hands warnings to the handlers above."""

    def __init__(self, lines: deque[str]) -> None:
        super().__init__(logging.INFO)
        self._lines = lines
        self.setFormatter(logging.Formatter(_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))
        above = logging.getLogger()
        if record.levelno >= above.getEffectiveLevel():
            above.handle(record)


@contextmanager
def keep_logs() -> Iterator[NodeLogs]:
    """Keep the log of all nodes in this process while the context lasts."""
    logs = NodeLogs()
    logger, keeper = logging.getLogger("ottla"), _Keeper(logs.lines)
    level, propagates = logger.level, logger.propagate
    logger.addHandler(keeper)
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield logs
    finally:
        logger.removeHandler(keeper)
        logger.setLevel(level)
        logger.propagate = propagates
