"""The loggers of this process and their levels, by Kafka's names of levels (KIP-412).

Levels are changed in memory only: a restart brings back those the node starts with. Loggers belong
to the process, as in Kafka, so two nodes in one process share them.

    TRACE 5   DEBUG 10   INFO 20   WARN 30   ERROR 40   FATAL 50
"""

import logging
from typing import Final

ROOT: Final = "root"
LEVELS: Final = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}


class Loggers:
    """The loggers that exist now. A package counts as one: its level is that of its modules."""

    def __init__(self, root: logging.Logger | None = None) -> None:
        self._root = root or logging.getLogger()

    def exists(self, name: str) -> bool:
        """Say whether a logger can be changed by this name."""
        return name == ROOT or name in self._root.manager.loggerDict

    def levels(self) -> dict[str, str]:
        """Return the level in force of every logger, by name; the root logger comes first."""
        names = sorted(self._root.manager.loggerDict)
        return {ROOT: _level_name(self._root.getEffectiveLevel())} | {
            name: _level_name(self._effective(name)) for name in names
        }

    def set_level(self, name: str, level: str) -> None:
        """Set the level of a logger that exists to one of `LEVELS`."""
        assert self.exists(name), "checked before"
        self._logger(name).setLevel(LEVELS[level])

    def inherit_level(self, name: str) -> None:
        """Let a logger take the level of its parent again."""
        assert self.exists(name), "checked before"
        assert name != ROOT
        self._logger(name).setLevel(logging.NOTSET)

    def _logger(self, name: str) -> logging.Logger:
        return self._root if name == ROOT else self._root.manager.getLogger(name)

    def _effective(self, name: str) -> int:
        """Return the level in force without making a logger of a mere parent of others."""
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
