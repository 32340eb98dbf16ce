"""Values kept outside the configuration: ``config.providers`` (KIP-297, KIP-421).

    config.providers=file,env,dir
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
    config.providers.dir.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider

    ssl.key.password=${file:/etc/ottla/secrets.properties:key.password}
    ssl.keystore.password=${env:KEYSTORE_PASSWORD}
    sasl.jaas.config=${dir:/run/secrets:jaas}

Resolved once, when a node reads its own settings; never for values that arrive over the network.
The class names only say which of the three is meant: nothing is loaded. A value that a configured
provider does not have is an error, where Kafka would use the text ``${...}`` itself as the value.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from ottla.config.problems import Problem
from ottla.config.properties import BadProperties, Setting, from_text

PREFIX: Final = "config.providers"
_PACKAGE: Final = "org.apache.kafka.common.config.provider."
_REFERENCE: Final = re.compile(r"\$\{([^}:]*):(?:([^}]*?):)?([^}:]*)\}")


class FileReader(Protocol):
    """Reads small text files for providers."""

    def __call__(self, path: str) -> str:
        """Return the text of a file. Raises OSError or UnicodeDecodeError."""
        ...


class NotFound(Exception):
    """A provider has no such value; the text says why and contains no value."""


Provider = Callable[[str, str], str]
"""Return the value of a path and a key. Raises `NotFound`."""


def resolve_references(
    settings: Sequence[Setting], environment: Mapping[str, str], read_file: FileReader | None
) -> tuple[list[Setting], list[Problem]]:
    """Return the settings with references replaced and without those of the providers."""
    given = {each.key: each for each in settings}
    providers, problems = _providers(given, environment, read_file)
    found: list[Setting] = []
    for setting in settings:
        if setting.key == PREFIX or setting.key.startswith(f"{PREFIX}."):
            continue
        try:
            found.append(_resolved(setting, providers))
        except NotFound as error:
            problems.append(Problem(setting.key, None, str(error), setting.origin))
    return found, problems


def _resolved(setting: Setting, providers: Mapping[str, Provider]) -> Setting:
    def value_of(reference: re.Match[str]) -> str:
        name, path, key = reference[1], reference[2] or "", reference[3]
        provider = providers.get(name)
        return reference[0] if provider is None else provider(path, key)

    value = _REFERENCE.sub(value_of, setting.value)
    return setting if value == setting.value else replace(setting, value=value, is_reference=True)


def _providers(
    given: Mapping[str, Setting], environment: Mapping[str, str], read_file: FileReader | None
) -> tuple[dict[str, Provider], list[Problem]]:
    names = given[PREFIX].value.split(",") if PREFIX in given else []
    providers: dict[str, Provider] = {}
    problems: list[Problem] = []
    for name in filter(None, map(str.strip, names)):
        key = f"{PREFIX}.{name}.class"
        kind = given[key].value.strip().removeprefix(_PACKAGE) if key in given else ""
        allowed = _parameter(given, name, "allowed.paths")
        if kind == "EnvVarConfigProvider":
            pattern = _parameter(given, name, "allowlist.pattern")
            providers[name] = _environment_provider(environment, pattern)
        elif kind in ("FileConfigProvider", "DirectoryConfigProvider") and read_file is None:
            problems.append(Problem(key, None, "files cannot be read here"))
        elif kind == "FileConfigProvider" and read_file is not None:
            providers[name] = _file_provider(read_file, _paths(allowed))
        elif kind == "DirectoryConfigProvider" and read_file is not None:
            providers[name] = _directory_provider(read_file, _paths(allowed))
        else:
            known = "FileConfigProvider, DirectoryConfigProvider or EnvVarConfigProvider"
            problems.append(Problem(key, kind or None, f"must be Kafka's {known}"))
    return providers, problems


def _parameter(given: Mapping[str, Setting], name: str, parameter: str) -> str | None:
    setting = given.get(f"{PREFIX}.{name}.param.{parameter}")
    return None if setting is None or not setting.value.strip() else setting.value.strip()


def _paths(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(each.strip().rstrip("/") for each in text.split(",") if each.strip())


def _check_path(path: str, allowed: tuple[str, ...] | None) -> None:
    if not path.startswith("/") or ".." in path.split("/"):
        raise NotFound(f"the path {path!r} must be absolute and without '..'")
    if allowed is None:
        return
    if not any(path == each or path.startswith(f"{each}/") for each in allowed):
        raise NotFound(f"the path {path!r} is not among allowed.paths")


def _read(read_file: FileReader, path: str) -> str:
    try:
        return read_file(path)
    except OSError as error:
        raise NotFound(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise NotFound(f"{path} is not UTF-8") from error


def _file_provider(read_file: FileReader, allowed: tuple[str, ...] | None) -> Provider:
    def value_of(path: str, key: str) -> str:
        _check_path(path, allowed)
        try:
            found = {each.key: each.value for each in from_text(_read(read_file, path))}
        except BadProperties as error:
            raise NotFound(f"{path}: {error}") from error
        if key not in found:
            raise NotFound(f"{path} has no key {key!r}")
        return found[key]

    return value_of


def _directory_provider(read_file: FileReader, allowed: tuple[str, ...] | None) -> Provider:
    def value_of(path: str, key: str) -> str:
        _check_path(f"{path}/{key}", allowed)
        if "/" in key or not key:
            raise NotFound(f"{key!r} must be the name of a file in {path}")
        return _read(read_file, f"{path}/{key}")

    return value_of


def _environment_provider(environment: Mapping[str, str], pattern: str | None) -> Provider:
    def value_of(path: str, key: str) -> str:
        if path:
            raise NotFound("a reference to the environment has no path: ${env:NAME}")
        if pattern is not None and not re.fullmatch(pattern, key):
            raise NotFound(f"the variable {key} does not match allowlist.pattern")
        if key not in environment:
            raise NotFound(f"the variable {key} is not set")
        return environment[key]

    return value_of
