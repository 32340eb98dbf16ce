"""Print the result of a query, batch by batch: as a table, JSON lines, YAML, CSV or parquet.

A table's widths are those of its first rows; later cells that are wider move their line, or, on a
terminal that has space for all columns, continue on the next one. Bytes are printed as text, and
what is not UTF-8 in them as ``\\xff``; parquet keeps them.
"""

import csv
import datetime
import decimal
import enum
import json
import math
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, Final, Protocol

import pyarrow as pa

from ottla.cli.terminal.output import Output
from ottla.cli.terminal.rendering import Plain, render_line
from ottla.cli.terminal.table_layout import fit, is_wide, row_lines
from ottla.operations.escaping import escape, readable

_MEASURED_ROWS: Final = 1000
# The writer quotes a value that contains one of these: a lone \\r would begin a row for readers.
_CSV_END: Final = "\r\n"
_PLAN: Final = ["explain_key", "explain_value"]


class SqlOutput(enum.StrEnum):
    """Output format of a result."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    PARQUET = "parquet"


class Writer(Protocol):
    """Writes the batches of one result."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write some rows; the first batch may have none, but has the columns."""
        ...

    def flush(self) -> None:
        """Print what is held, to be followed by more rows."""
        ...

    def close(self) -> None:
        """Write the rest."""
        ...


def open_writer(output: SqlOutput, out: BinaryIO, *, is_terminal: bool) -> Writer:
    """Return a writer to ``out``, which stays open."""
    match output:
        case SqlOutput.TABLE:
            width = shutil.get_terminal_size().columns if is_terminal else None
            return _TableWriter(out, width)
        case SqlOutput.CSV:
            return _CsvWriter(out, is_escaped=is_terminal)
        case SqlOutput.PARQUET:
            return _ParquetWriter(out)
        case SqlOutput.JSON | SqlOutput.YAML:
            return _LinesWriter(out, Output(output.value))


def plain(value: object) -> Plain:  # noqa: PLR0911 - one per kind
    """Return a value of Arrow as text, a number, a list or a mapping."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            # JSON has no words for these.
            return value if math.isfinite(value) else str(value)
        case bytes():
            return readable(value)
        case datetime.datetime() | datetime.date() | datetime.time():
            return _iso(value)
        case decimal.Decimal() if value.as_tuple().exponent == 0:
            return int(value)  # a sum of integers
        case decimal.Decimal() | uuid.UUID() | datetime.timedelta():
            return str(value)
        case Mapping():
            return {str(name): plain(each) for name, each in value.items()}
        case Sequence():
            return [plain(each) for each in value]
        case _:
            return str(value)


def _iso(value: datetime.datetime | datetime.date | datetime.time) -> str:
    text = value.isoformat()
    return f"{text.removesuffix('+00:00')}Z" if text.endswith("+00:00") else text


def _rows(batch: pa.RecordBatch) -> Iterator[list[object]]:
    names = range(batch.num_columns)
    columns = [batch.column(each).to_pylist(maps_as_pydicts="lossy") for each in names]
    yield from map(list, zip(*columns, strict=True))


def _text(value: object) -> str:
    found = plain(value)
    if isinstance(found, Mapping | list):
        return json.dumps(found, ensure_ascii=False)
    return found if isinstance(found, str) else json.dumps(found)


class _TableWriter:
    """Aligned columns, with their names above."""

    def __init__(self, out: BinaryIO, width: int | None) -> None:
        self._out = out
        self._width = width
        self._held: list[list[str]] | None = None
        self._widths: list[int] = []
        self._names: list[str] = []
        self._is_number: list[bool] = []

    def write(self, batch: pa.RecordBatch) -> None:
        if not self._names:
            self._names = list(batch.schema.names)
            self._is_number = [
                pa.types.is_integer(each.type)
                or pa.types.is_floating(each.type)
                or pa.types.is_decimal(each.type)
                for each in batch.schema
            ]
            self._held = []
        for row in _rows(batch):
            if self._names == _PLAN:  # a drawing of several lines
                self._out.write(escape(f"{row[1]}\n", keep="\n").encode())
                continue
            cells = ["-" if each is None else escape(_text(each)) for each in row]
            if self._held is None:
                self._line(cells)
                continue
            self._held.append(cells)
            if len(self._held) >= _MEASURED_ROWS:
                self._measure()

    def flush(self) -> None:
        """Print what is held, to be followed by more rows."""
        if self._held:
            self._measure()
        self._out.flush()

    def close(self) -> None:
        if self._held is not None and self._names != _PLAN:
            self._measure()
        self._out.flush()

    def _measure(self) -> None:
        held, self._held = self._held or [], None
        head = [escape(each) for each in self._names]
        self._widths = fit([head, *held], self._is_number, self._width)
        if is_wide(self._widths, self._width):
            self._width = None
            self._widths = fit([head, *held], self._is_number, None)
        for cells in [head, *held]:
            self._line(cells)

    def _line(self, cells: Sequence[str]) -> None:
        widths = self._widths
        if self._width is None:
            widths = [max(len(cell), width) for cell, width in zip(cells, widths, strict=True)]
        for line in row_lines(cells, widths, self._is_number):
            self._out.write(line.encode("utf-8", "surrogateescape") + b"\n")


class _LinesWriter:
    """One JSON object, or one YAML document, per row."""

    def __init__(self, out: BinaryIO, output: Output) -> None:
        self._out = out
        self._output = output

    def write(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        for row in _rows(batch):
            found = {name: plain(each) for name, each in zip(names, row, strict=True)}
            self._out.write(render_line(found, self._output).encode())

    def flush(self) -> None:
        """Print what is held."""
        self._out.flush()

    close = flush


class _CsvLines(list[str]):
    """The lines of a `csv.writer`, which calls ``write`` once per row."""

    def write(self, line: str) -> None:
        self.append(line.removesuffix(_CSV_END) + "\n")


class _CsvWriter:
    """Comma-separated values (RFC 4180), with a header; null is an empty field.

    Line ends are ``\\n``. For a terminal control characters are escaped.
    """

    def __init__(self, out: BinaryIO, *, is_escaped: bool) -> None:
        self._out = out
        self._is_escaped = is_escaped
        self._has_head = False

    def write(self, batch: pa.RecordBatch) -> None:
        lines = _CsvLines()
        writer = csv.writer(lines, lineterminator=_CSV_END)
        if not self._has_head:
            writer.writerow(batch.schema.names)
            self._has_head = True
        writer.writerows(
            ["" if each is None else _text(each) for each in row] for row in _rows(batch)
        )
        text = "".join(lines)
        self._out.write((escape(text, keep="\n\t") if self._is_escaped else text).encode())

    def flush(self) -> None:
        """Print what is held."""
        self._out.flush()

    close = flush


class _ParquetWriter:
    """A parquet file, compressed with zstd."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._writer: pa.parquet.ParquetWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        from pyarrow.parquet import ParquetWriter

        if self._writer is None:
            self._writer = ParquetWriter(self._out, batch.schema, compression="zstd")
        if batch.num_rows:
            self._writer.write_batch(batch)

    def flush(self) -> None:
        """Row groups are written as they come."""

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._out.flush()
