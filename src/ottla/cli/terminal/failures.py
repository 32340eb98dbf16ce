"""How a command fails: a message on stderr, as text or as a document, and an exit code."""

import errno
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Final, NoReturn

from ottla.cli.terminal.output import Output

FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
"""The code of a process that SIGINT ended, as shells report it."""

# Names and reasons from a broker may contain any character: these are the only control characters
# that an error is printed with.
_LAYOUT: Final = "\n\t"
_wanted: ContextVar[Output] = ContextVar("errors", default=Output.TABLE)


def report_errors_in(output: Output) -> None:
    """Store the output format of the current command, for its errors."""
    _wanted.set(output)


def fail(message: str, kafka_error: str | None = None) -> NoReturn:
    """Print an error and exit with 1. ``kafka_error`` is the name of the broker's error code."""
    for handler in logging.getLogger().handlers:
        handler.flush()  # a thread writes the log; the error is the last line
    with suppress(OSError):  # the exit code tells it, too
        sys.stderr.write(error_text(message, _wanted.get(), FAILED, kafka_error))
    sys.exit(FAILED)


def reason_of(error: Exception) -> str:
    """Return the message of an error; that of a file begins with its name."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error) or type(error).__name__
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if error.errno == errno.EBADF:  # see `standard_streams.open_closed_streams`
        return "standard input or standard output is closed"
    return error.strerror


@contextmanager
def naming(path: object) -> Iterator[None]:
    """Add the path of a file to errors of reading and writing it, which lack it.

    Raises:
        OSError: as raised inside, with a file name.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def error_text(message: str, output: Output, exit_code: int, kafka_error: str | None = None) -> str:
    """Return an error as text, or as a document for programs."""
    if output is Output.TABLE:
        from ottla.operations.escaping import escape

        return f"{escape(message, keep=_LAYOUT)}\n"
    from ottla.cli.terminal.rendering import render

    code = {} if kafka_error is None else {"kafka_error": kafka_error}
    return render({"error": message, **code, "exit_code": exit_code}, output)


def requested_output(arguments: Sequence[str]) -> Output:
    """Find the output format in a command line that may not be valid; the last one counts.

    Errors in the command line itself are printed before its options are known.
    """
    found = Output.TABLE
    for at, word in enumerate(arguments):
        if word == "--":
            break
        value = _value_of(word, arguments[at + 1] if at + 1 < len(arguments) else "")
        if value in set(Output):
            found = Output(value)
    return found


def _value_of(word: str, following: str) -> str:
    if word in ("-o", "--output"):
        return following
    if word.startswith("--output="):
        return word.removeprefix("--output=")
    return word[2:] if word.startswith("-o") else ""
