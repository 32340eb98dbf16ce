"""``ottla dlq``: dead letters: why records failed, and sending them back."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import typer

from ottla.cli.commands.message_format import envelope
from ottla.cli.connecting.session import with_cluster
from ottla.cli.options import (
    BOOTSTRAP_DEFAULT,
    BootstrapOption,
    OutputOption,
    answer,
    answer_each,
    say,
)
from ottla.cli.terminal.progress import LiveLine
from ottla.cli.terminal.rendering import Plain, Row
from ottla.client.cluster import Cluster
from ottla.operations.counting import plural
from ottla.operations.dead_letter_headers import (
    CONVENTIONS,
    Convention,
    DeadLetter,
    conventions_named,
    own_headers,
    read_letter,
)
from ottla.operations.dead_letter_selection import LetterFilter, parse_place
from ottla.operations.dead_letter_topics import (
    LetterSummary,
    dead_letter_topics,
    summarize_letters,
)
from ottla.operations.escaping import readable
from ottla.operations.handled_letters import TooScattered
from ottla.operations.redrive import (
    Redrive,
    RedriveCounts,
    bounds,
    handled_letters,
    read_letters,
    run_redrive,
)
from ottla.runtime.clock import SystemClock

app = typer.Typer(
    help="Show dead letters, send them back (redrive), or drop them.",
    no_args_is_help=True,
    add_completion=False,
)

Topic = Annotated[str, typer.Argument(help="Dead-letter topic.")]
ConventionOption = Annotated[
    str | None,
    typer.Option(
        "--convention",
        help="Who wrote the headers: kafka, ottla, connect, streams or spring; found by default.",
    ),
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", help="Only letters whose reason contains this text.")
]
GroupOption = Annotated[str | None, typer.Option("--group", help="Only letters of this group.")]
OriginOption = Annotated[
    str | None, typer.Option("--origin", help="Only letters of records of this topic.")
]
AtOption = Annotated[
    str | None, typer.Option("--at", help="Only the letter at PARTITION:OFFSET of the topic.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Count the letters, and change nothing.")
]
AllOption = Annotated[bool, typer.Option("--all", help="All letters; needed without a filter.")]


@app.command("list")
def show_list(
    context: typer.Context,
    topics: Annotated[
        list[str] | None,
        typer.Argument(help="Dead-letter topics; by default those enabled or named as such."),
    ] = None,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """List dead-letter topics: letters that wait, the newest, and their reasons."""

    async def work(cluster: Cluster) -> list[Row]:
        names = topics or await dead_letter_topics(cluster)
        return [_summary_row(await summarize_letters(cluster, name)) for name in names]

    answer(context, output, with_cluster(bootstrap, work), empty="no dead-letter topics")


def _summary_row(summary: LetterSummary) -> Row:
    reasons: dict[str, Plain] = dict(summary.reasons)
    newest = None if summary.newest is None else _time(summary.newest)
    return {
        "topic": summary.topic,
        "waiting": summary.waiting,
        "newest": newest,
        "reasons": reasons,
    }


@app.command("show")
def show(  # noqa: PLR0913 - one per option
    context: typer.Context,
    topic: Topic,
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Letters at most.")] = 20,
    reason: ReasonOption = None,
    group: GroupOption = None,
    origin: OriginOption = None,
    at: AtOption = None,
    convention: ConventionOption = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show letters that wait: reason, origin, deliveries, key, value and headers."""
    selects = _selection(reason, group, origin, at)
    conventions = _conventions(convention)

    async def work(cluster: Cluster) -> list[Row]:
        limits = await bounds(cluster, topic)
        handled = await handled_letters(cluster, topic, limits)
        read = partial(read_letter, conventions=conventions)
        rows: list[Row] = []
        async for letters in read_letters(cluster, read, limits, handled):
            rows += [_row(each) for each in letters if selects(each)]
            if len(rows) >= limit:
                break
        return rows[:limit]

    found = with_cluster(bootstrap, work)
    answer_each(context, output, found)
    if not found:
        say("no dead letters")


def _row(letter: DeadLetter) -> Row:
    record = envelope(letter.at, letter.record)
    return {
        "partition": letter.at.partition,
        "offset": letter.record.offset,
        "time": _time(letter.record.timestamp),
        "reason": letter.reason,
        "origin": None
        if letter.topic is None
        else f"{letter.topic}-{letter.partition} offset {letter.offset}",
        "group": letter.group,
        "deliveries": letter.deliveries,
        "redrives": letter.redrives,
        "headers": [
            f"{key}={'' if value is None else readable(value)}"
            for key, value in own_headers(letter)
        ],
        **{name: record[name] for name in record if name.startswith(("key", "payload"))},
    }


@app.command("redrive")
def redrive(  # noqa: PLR0913 - one per option
    context: typer.Context,
    topic: Topic,
    *,
    to: Annotated[
        str | None, typer.Option("--to", help="Send to this topic instead of the topic of origin.")
    ] = None,
    every: AllOption = False,
    reason: ReasonOption = None,
    group: GroupOption = None,
    origin: OriginOption = None,
    at: AtOption = None,
    convention: ConventionOption = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.01, help="Letters per second at most.")
    ] = None,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Send letters back, each exactly once, to the topic of origin or to another topic.

    A redrive that was interrupted continues where it stopped.
    """
    plan = Redrive(
        topic,
        _selection(reason, group, origin, at, needs_all=not every),
        partial(read_letter, conventions=_conventions(convention)),
        to,
        rate,
        is_dry_run=dry_run,
    )
    _run(context, bootstrap, output, plan)


@app.command("drop")
def drop(  # noqa: PLR0913 - one per option
    context: typer.Context,
    topic: Topic,
    *,
    every: AllOption = False,
    reason: ReasonOption = None,
    group: GroupOption = None,
    origin: OriginOption = None,
    at: AtOption = None,
    convention: ConventionOption = None,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Mark letters as handled without sending them back; the topic's retention deletes them."""
    plan = Redrive(
        topic,
        _selection(reason, group, origin, at, needs_all=not every),
        partial(read_letter, conventions=_conventions(convention)),
        is_drop=True,
        is_dry_run=dry_run,
    )
    _run(context, bootstrap, output, plan)


def _run(context: typer.Context, bootstrap: str, output: OutputOption, plan: Redrive) -> None:
    line = LiveLine(SystemClock())
    verb = "dropped" if plan.is_drop else "sent back"

    def note(counts: RedriveCounts) -> None:
        if line.is_due():
            line.show(f"{plural(counts.handled, 'letter')} {verb}")

    async def work(cluster: Cluster) -> RedriveCounts:
        return await run_redrive(cluster, plan, note)

    try:
        counts = with_cluster(bootstrap, work)
    except TooScattered as error:
        raise typer.BadParameter(str(error)) from error
    finally:
        line.clear()
    targets: dict[str, Plain] = dict(sorted(counts.targets.items()))
    answer(
        context,
        output,
        {
            "topic": plan.topic,
            "action": "drop" if plan.is_drop else "redrive",
            "dry_run": plan.is_dry_run,
            "letters": counts.handled,
            "to": targets,
            "not_selected": counts.not_selected,
            "without_record": counts.without_record,
        },
    )


def _conventions(name: str | None) -> tuple[Convention, ...]:
    if name is None:
        return CONVENTIONS
    try:
        return tuple(conventions_named(name))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--convention") from error


def _selection(
    reason: str | None,
    group: str | None,
    origin: str | None,
    at: str | None,
    *,
    needs_all: bool = False,
) -> Callable[[DeadLetter], bool]:
    """Return which letters the options select. A usage error if they select all by accident."""
    if needs_all and (reason, group, origin, at) == (None, None, None, None):
        raise typer.BadParameter("give --all, or a filter: --at, --reason, --group or --origin")
    try:
        place = None if at is None else parse_place(at)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--at") from error
    return LetterFilter(reason, group, origin, place).selects


def _time(millis: int) -> str:
    """Return a time of 20 characters, so that a table fits a narrow terminal."""
    return f"{datetime.fromtimestamp(millis / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
