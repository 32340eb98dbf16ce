"""Named client settings, in a TOML file that only its owner may read.

    # ~/.config/ottla/profiles.toml
    [staging]
    "bootstrap.servers" = "kafka.staging:9093"
    "security.protocol" = "SASL_SSL"

``OTTLA_PROFILES`` overrides the path of the file, ``XDG_CONFIG_HOME`` replaces ``~/.config``.
"""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

from ottla.security.private_files import PRIVATE, write_file

Profiles: TypeAlias = dict[str, dict[str, str]]
_PATH_ENDINGS: Final = (".location", ".keytab")


class BadProfiles(ValueError):
    """The file cannot be read; the message contains none of its values."""


def profiles_path() -> Path:
    """Return the path of the profiles file."""
    if named := os.environ.get("OTTLA_PROFILES"):
        return Path(named)
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "ottla" / "profiles.toml"


def absolute_paths(settings: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Return settings whose paths are absolute: commands run in any directory.

    A relative path means, as for Kafka's clients, one below the directory of the command.
    """
    return {
        key: str(directory / value) if value and key.endswith(_PATH_ENDINGS) else value
        for key, value in settings.items()
    }


def read_profiles() -> Profiles:
    """Return all profiles; none where there is no file. Raises `BadProfiles`."""
    path = profiles_path()
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BadProfiles(f"{path}: {error.strerror}") from error
    except ValueError as error:
        # The parser's message may quote the line, and with it a password.
        raise BadProfiles(f"{path}: is not valid TOML") from error
    profiles: Profiles = {}
    for name, settings in found.items():
        if not isinstance(settings, Mapping):
            raise BadProfiles(f"{path}: {name!r} must be a table of settings")
        profiles[name] = _flat(settings)
    return profiles


def write_profiles(profiles: Profiles) -> None:
    """Replace the file, atomically, with mode 0600. Raises `OSError`."""
    path = profiles_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_file(path, _to_text(profiles).encode(), PRIVATE)


def _flat(settings: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Flatten nested tables, which TOML makes of keys without quotes, to dotted keys."""
    found: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def _to_text(profiles: Profiles) -> str:
    parts = ["# Written by `ottla profile`. It may hold passwords: keep it private.\n"]
    for name, settings in sorted(profiles.items()):
        parts.append(f"\n[{_quoted(name)}]\n")
        parts += [f"{_quoted(key)} = {_quoted(value)}\n" for key, value in sorted(settings.items())]
    return "".join(parts)


def _quoted(text: str) -> str:
    """Return a TOML basic string; JSON's escapes are among TOML's, except that of DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
