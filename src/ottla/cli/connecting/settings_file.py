"""Read a ``server.properties`` for a command, or exit with its errors; set up the log by it."""

import logging
import os
import sys
from typing import Final

from ottla.cli.terminal.failures import fail
from ottla.cli.terminal.text_files import UnreadableFile, read_text
from ottla.config.generated import BrokerConfig
from ottla.config.loading import Loaded, load
from ottla.config.problems import ConfigError
from ottla.runtime.log_writer import LogWriter

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"


def load_settings(path: str | os.PathLike[str], overrides: list[str]) -> Loaded:
    """Return the settings of a file, the environment and overrides; exit 1 on any problem."""
    try:
        text = read_text(path)
    except UnreadableFile as error:
        fail(str(error))
    try:
        loaded = load(text, os.environ, overrides, _read_text)
    except ConfigError as error:
        fail("\n".join(f"{path}: {problem}" for problem in error.problems))
    for warning in loaded.warnings:
        sys.stderr.write(f"{path}: warning: {warning}\n")
    return loaded


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def begin_log() -> None:
    """Log as text to standard error until the settings are known; a thread writes the lines."""
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, handlers=[LogWriter(sys.stderr)])


def apply_log_settings(config: BrokerConfig) -> None:
    """Apply the settings of the log; their code is not loaded for the defaults."""
    settings = config.log_format, config.log_level, config.log_levels
    if settings != ("text", "INFO", ()):
        from ottla.observability.log_output import configure_log

        configure_log(*settings)
