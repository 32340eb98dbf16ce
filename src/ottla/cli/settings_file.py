"""Read a ``server.properties`` for a command, or exit with its errors."""

import os
import sys
from typing import NoReturn

from ottla.config.loading import Loaded, load
from ottla.config.problems import ConfigError


def load_settings(path: str | os.PathLike[str], overrides: list[str]) -> Loaded:
    """Return the settings of a file, the environment and overrides; exit 1 on any problem."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{path}: {error}")
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


def fail(message: str) -> NoReturn:
    """Print an error and exit with 1."""
    sys.stderr.write(f"{message}\n")
    sys.exit(1)
