"""``ottla log``: dump and verify the files of a log directory while its node is stopped."""

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from ottla.cli.commands.log_dump import DAMAGE, NotDumpable, dump_file
from ottla.cli.commands.log_verify import segment_sizes, verify
from ottla.cli.options import OutputOption, answer, chosen, say, terminal_width
from ottla.cli.terminal.failures import fail, reason_of
from ottla.cli.terminal.output import Output
from ottla.cli.terminal.progress import WorkProgress
from ottla.cli.terminal.rendering import Row, render, render_line
from ottla.operations.counting import plural
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.storage.log.files import Kind, State, parse_name

_ROWS_AT_ONCE: Final = 500
app = typer.Typer(
    help="Dump and verify log files offline.", no_args_is_help=True, add_completion=False
)

Paths = Annotated[list[Path], typer.Argument(exists=True, help="Files, or partition directories.")]


@app.command("dump")
def dump(
    context: typer.Context,
    paths: Paths,
    *,
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Print every record instead of every batch.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """Print the contents of segments, indexes, snapshots, checkpoints and the metadata log."""
    disk = RealDisk()
    form = chosen(context, output)
    for path in itertools.chain.from_iterable(map(_segments_of, paths)):
        if form is Output.TABLE:
            say(f"{path}:")
        _print(_contents(disk, path, with_records=records), form)


def _contents(disk: RealDisk, path: Path, *, with_records: bool) -> Iterator[Row]:
    """Yield the rows of a file; exit 1 where it cannot be read on."""
    try:
        yield from dump_file(disk, str(path.absolute()), with_records=with_records)
    except NotDumpable as error:
        fail(str(error))
    except OSError as error:
        fail(reason_of(error))
    except DAMAGE as error:
        fail(f"{path}: damaged from here on: {error}")


def _segments_of(path: Path) -> list[Path]:
    """Return a file, or the segments of a partition's directory."""
    if not path.is_dir():
        return [path]
    return [
        each
        for each in sorted(path.iterdir())
        if (found := parse_name(each.name)) and (found.kind, found.state) == (Kind.LOG, State.LIVE)
    ]


def _print(rows: Iterable[Row], form: Output) -> None:
    """Print rows as they are read: a file may be larger than memory."""
    rows = iter(rows)
    while some := list(itertools.islice(rows, _ROWS_AT_ONCE)):
        if form is Output.TABLE:
            sys.stdout.write(render(some, form, terminal_width()))
        else:
            sys.stdout.write("".join(render_line(row, form) for row in some))


@app.command("verify")
def check(
    context: typer.Context,
    paths: Paths,
    *,
    output: OutputOption = None,
) -> None:
    """Check CRCs, offsets and indexes without changing anything; exit 1 if there is a problem."""
    disk = RealDisk()
    names = [str(path.absolute()) for path in paths]
    try:
        sizes = [size for name in names for size in segment_sizes(disk, name)]
        progress = _Verified(sizes)
        try:
            found = [each for name in names for each in verify(disk, name, progress)]
        finally:
            text = progress.work.end()
    except OSError as error:
        fail(reason_of(error))
    answer(context, output, [each._asdict() for each in found])
    if found:
        say(f"{text}: {plural(len(found), 'problem')} found")
        raise typer.Exit(1)
    say(f"{text}: no problems found")


class _Verified:
    """Shows the progress of a verification."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.work = WorkProgress(SystemClock(), "verified", "segments", len(sizes))
        self.work.bytes_total = sum(sizes)

    def batch(self, size: int) -> None:
        """Count a batch."""
        self.work.bytes += size
        self.work.show()

    def segment(self) -> None:
        """Count a segment."""
        self.work.done += 1
