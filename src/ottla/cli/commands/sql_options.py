"""Parse the options of ``ottla sql``; wrong ones are usage errors."""

import datetime
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import typer

from ottla.cli.commands.registry_option import registry_settings
from ottla.cli.commands.sql_output import SqlOutput
from ottla.cli.connecting.connection_settings import (
    client_properties,
    options_of,
    resolve_bootstrap,
)
from ottla.cli.connecting.session import parse_bootstrap
from ottla.cli.options import Common
from ottla.client.blocking.broker_client import ClientSettings
from ottla.client.client_security import is_security_key
from ottla.client.offset_spec import AtTime, BadOffset, OffsetSpec, parse_offset
from ottla.client.setting_names import CLIENT, CONSUMER
from ottla.formats.record_values import BadValues, Format, PartOptions
from ottla.formats.registry_client import RegistrySettings
from ottla.runtime.clock import SystemClock
from ottla.sql.session import SqlOptions
from ottla.sql.topics import TopicFormats

# A command on a terminal should not wait as long as a job: Kafka's default is a minute.
API_TIMEOUT_MS: Final = 8_000
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"([0-9]+) *(ms|s|m|h|d)\Z")
_TOPIC: Final = re.compile(r"([A-Za-z0-9._-]+)=(.*)\Z", re.DOTALL)


def client_settings(bootstrap: str) -> ClientSettings:
    """Return the settings of the connection, from all their sources."""
    properties = client_properties()
    addresses = parse_bootstrap(resolve_bootstrap(bootstrap, properties))
    options_of(properties)  # bad settings are a usage error
    known = {
        key: value
        for key, value in properties.items()
        if key in CLIENT | CONSUMER or is_security_key(key)
    }
    known.pop("bootstrap.servers", None)
    known.setdefault("default.api.timeout.ms", str(API_TIMEOUT_MS))
    return ClientSettings(
        tuple(f"[{a.host}]:{a.port}" if ":" in a.host else f"{a.host}:{a.port}" for a in addresses),
        known.pop("client.id", "") or "ottla-sql",
        known,
    )


def chosen_output(
    context: typer.Context, output: str | None, file: Path | None, *, is_following: bool
) -> SqlOutput:
    """Return the output format given after the command, else before it, else by the file's name."""
    common = context.find_object(Common)
    text = output or (str(common.output) if common and common.output else None)
    if text is None and file is not None and file.suffix[1:] in set(SqlOutput):
        text = file.suffix[1:]
    try:
        found = SqlOutput(text or "table")
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} must be one of {', '.join(SqlOutput)}", param_hint="-o"
        ) from None
    if found is SqlOutput.PARQUET and is_following:
        raise typer.BadParameter("a parquet file must end: not with --follow", param_hint="-o")
    if found is SqlOutput.PARQUET and file is None and sys.stdout.isatty():
        raise typer.BadParameter(
            "parquet is binary: give --file, or redirect the output", param_hint="-o"
        )
    return found


def topic_formats(
    keys: Mapping[str | None, PartOptions],
    values: Mapping[str | None, PartOptions],
    bad: str,
    registry: str | None,
    client: ClientSettings,
) -> TopicFormats:
    """Return the formats of all topics; their schemas may be in the registry of the cluster."""
    cluster = RegistrySettings.of_cluster(client)
    return TopicFormats(keys, values, bad_values(bad), registry_settings(registry), cluster)


def sql_options(
    formats: TopicFormats,
    between: tuple[str, str],
    late: str | None,
    memory: str,
    *,
    is_committed: bool,
) -> SqlOptions:
    """Return what a session reads; ``between`` is ``--from`` and ``--to``."""
    now = SystemClock().now()
    return SqlOptions(
        formats=formats,
        start=moment(between[0], now, "--from"),
        end=moment(between[1], now, "--to"),
        is_committed_only=is_committed,
        bad=formats.bad,
        late_ms_max=None if late is None else duration(late, "--late"),
        memory=memory,
    )


def bad_values(text: str) -> BadValues:
    """Parse ``--bad-values``."""
    try:
        return BadValues(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} must be fail or null", param_hint="--bad-values"
        ) from None


def part_options(
    formats: Sequence[str] | None,
    schemas: Sequence[str] | None,
    files: Sequence[str] | None,
    messages: Sequence[str] | None,
    prefix: str,
) -> dict[str | None, PartOptions]:
    """Return the declared formats by topic. ``prefix`` is that of the options' names."""
    kinds = _by_topic(formats, f"--{prefix}format")
    texts, paths, names = (_by_topic(each, "") for each in (schemas, files, messages))
    found = {}
    for topic in {*kinds, *texts, *paths, *names}:
        text = _given(kinds, topic) or "auto"
        try:
            kind = Format(text)
        except ValueError:
            raise typer.BadParameter(
                f"{text!r} must be one of {', '.join(Format)}", param_hint=f"--{prefix}format"
            ) from None
        found[topic] = PartOptions(
            format=kind,
            schema=_given(texts, topic),
            schema_file=_given(paths, topic),
            message=_given(names, topic),
        )
    return found


def _given(values: Mapping[str | None, str], topic: str | None) -> str | None:
    return values.get(topic, values.get(None))


def _by_topic(items: Sequence[str] | None, option: str) -> dict[str | None, str]:
    found: dict[str | None, str] = {}
    for item in items or ():
        named = _TOPIC.match(item)
        topic, text = (named[1], named[2]) if named else (None, item)
        if topic in found:
            raise typer.BadParameter(f"{item!r} contradicts {found[topic]!r}", param_hint=option)
        found[topic] = text
    return found


def duration(text: str, option: str) -> int:
    """Parse ``10m`` and the like; return milliseconds."""
    found = _DURATION.match(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} must be like 30s, 10m, 2h or 1d", param_hint=option)
    return int(found[1]) * _UNIT_MS[found[2]]


def moment(text: str, now_ms: int, option: str) -> OffsetSpec:
    """Parse an offset, a time, or a duration before now."""
    if _DURATION.match(text.strip()):
        return AtTime(max(now_ms - duration(text, option), 0))
    try:
        return parse_offset(text)
    except BadOffset:
        pass
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} must be beginning, end, N, -N, @milliseconds, 2026-01-31T12:00 or 10m",
            param_hint=option,
        ) from None
    utc = found if found.tzinfo else found.replace(tzinfo=datetime.UTC)
    return AtTime(max(int(utc.timestamp() * 1000), 0))
