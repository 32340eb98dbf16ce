"""The loggers of this process and their levels, with Kafka's level names (KIP-412).

Levels are changed in memory only: a restart resets them. Loggers belong to the process, as in
Kafka, so two nodes in one process share them.

    TRACE 5   DEBUG 10   INFO 20   WARN 30   ERROR 40   FATAL 50
"""

import logging
from typing import Final

ROOT: Final = "root"
LEVELS: Final = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}


class Loggers:
    """The existing loggers. A package is a logger, too: its modules inherit its level."""

    def __init__(self, root: logging.Logger | None = None) -> None:
        self._root = root or logging.getLogger()

    def exists(self, name: str) -> bool:
        """Say whether there is a logger of this name."""
        return name == ROOT or name in self._root.manager.loggerDict

    def levels(self) -> dict[str, str]:
        """Return the effective level of every logger, by name; the root logger comes first."""
        names = sorted(self._root.manager.loggerDict)
        return {ROOT: _level_name(self._root.getEffectiveLevel())} | {
            name: _level_name(self._effective(name)) for name in names
        }

    def set_level(self, name: str, level: str) -> None:
        """Set the level of a logger that exists to one of `LEVELS`."""
        assert self.exists(name), "checked before"
        self._logger(name).setLevel(LEVELS[level])

    def inherit_level(self, name: str) -> None:
        """Let a logger inherit the level of its parent again."""
        assert self.exists(name), "checked before"
        assert name != ROOT
        self._logger(name).setLevel(logging.NOTSET)

    def _logger(self, name: str) -> logging.Logger:
        return self._root if name == ROOT else self._root.manager.getLogger(name)

    def _effective(self, name: str) -> int:
        """Return the effective level without creating loggers for placeholders."""
        known = self._root.manager.loggerDict
        while name:
            found = known.get(name)
            if isinstance(found, logging.Logger):
                return found.getEffectiveLevel()
            name = name.rpartition(".")[0]
        return self._root.getEffectiveLevel()


def _level_name(level: int) -> str:
    """Return Kafka's name of the lowest level that is still logged; OFF when none is."""
    return next((name for name, number in LEVELS.items() if number >= level), "OFF")
