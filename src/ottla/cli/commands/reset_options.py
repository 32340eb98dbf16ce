"""The options of both ``reset-offsets`` commands; exactly one gives the target."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ottla.cli.terminal.failures import fail
from ottla.cli.terminal.text_files import UnreadableFile, read_text
from ottla.operations.reset_plan import (
    BadReset,
    FromFile,
    ShiftBy,
    Target,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
    parse_duration,
    parse_file,
    parse_time,
    parse_topics,
)
from ottla.operations.resetting import Resetting
from ottla.runtime.clock import SystemClock

Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", "-t", help="Topic, or some of its partitions: topic:0,2; may be repeated."
    ),
]
AllTopics = Annotated[
    bool, typer.Option("--all-topics", help="All topics for which the group has offsets.")
]
ToOffsetOption = Annotated[int | None, typer.Option("--to-offset", min=0, help="This offset.")]
ToDatetime = Annotated[
    str | None,
    typer.Option(
        "--to-datetime", help="Move to the first record since this time: 2026-11-16T08:30:00.000."
    ),
]
ByDuration = Annotated[
    str | None,
    typer.Option("--by-duration", help="Move to the first record of the last P1D, PT2H30M."),
]
ShiftByOption = Annotated[
    int | None,
    typer.Option("--shift-by", help="Move forward by this many records; backward if negative."),
]
FromFileOption = Annotated[
    Path | None, typer.Option("--from-file", help="File with lines topic,partition,offset.")
]
Execute = Annotated[
    bool, typer.Option("--execute", help="Apply the plan; without it the plan is only shown.")
]


class TargetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options as given."""

    is_earliest: bool = False
    is_latest: bool = False
    is_current: bool = False
    offset: int | None = None
    datetime: str | None = None
    duration: str | None = None
    shift: int | None = None
    file: Path | None = None


def target_of(target: TargetOptions) -> Target:
    """Return the target; a wrong or ambiguous one is a usage error, a bad file exits 1."""
    try:
        found = _targets(target)
    except BadReset as error:
        raise typer.BadParameter(str(error)) from error
    if len(found) != 1:
        raise typer.BadParameter(
            "give one of --to-earliest, --to-latest, --to-current, --to-offset, --to-datetime,"
            " --by-duration, --shift-by, --from-file"
        )
    return found[0]


def resetting_of(
    name: str, target: TargetOptions, topics: list[str] | None, is_all: bool
) -> Resetting:
    """Return the requested reset of a group; a wrong one is a usage error."""
    resetting = Resetting(name, target_of(target), topics_of(topics), is_all)
    try:
        resetting.check()
    except BadReset as error:
        raise typer.BadParameter(str(error)) from error
    return resetting


def topics_of(items: list[str] | None) -> dict[str, tuple[int, ...] | None]:
    """Return the requested partitions by topic; a malformed one is a usage error."""
    try:
        return parse_topics(items or ())
    except BadReset as error:
        raise typer.BadParameter(str(error), param_hint="--topic") from error


def _targets(target: TargetOptions) -> list[Target]:
    found: list[Target] = []
    if target.is_earliest:
        found.append(ToEarliest())
    if target.is_latest:
        found.append(ToLatest())
    if target.is_current:
        found.append(ToCurrent())
    if target.offset is not None:
        found.append(ToOffset(target.offset))
    if target.datetime is not None:
        found.append(ToTime(parse_time(target.datetime)))
    if target.duration is not None:
        found.append(ToTime(max(0, SystemClock().now() - parse_duration(target.duration))))
    if target.shift is not None:
        found.append(ShiftBy(target.shift))
    if target.file is not None:
        found.append(FromFile(parse_file(_read(target.file))))
    return found


def _read(path: Path) -> str:
    try:
        return read_text(path)
    except UnreadableFile as error:
        fail(str(error))
