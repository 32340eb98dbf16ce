"""Standard input, output and error of a command: closed ones, full disks, readers that have gone.

A closed descriptor would be given to the next file or connection that is opened, and Python has no
stream for it. It is opened again in the wrong direction, so that its use fails as it should.
"""

import os
import sys
from contextlib import suppress
from typing import Final, NoReturn

from ottla.cli.terminal.failures import fail, reason_of
from ottla.runtime import system_calls

_STREAMS: Final = (("stdin", "r", os.O_WRONLY), ("stdout", "w", os.O_RDONLY))


def open_closed_streams() -> None:
    """Open the standard streams that the caller has closed."""
    for number, (name, mode, flags) in enumerate((*_STREAMS, ("stderr", "w", os.O_WRONLY))):
        if getattr(sys, name) is not None:
            continue
        opened = system_calls.open_file(os.devnull, flags)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - for the whole run


def fail_with(error: OSError) -> NoReturn:
    """End a command: with 0 if the reader of its output has gone, otherwise with the reason."""
    drop_output()
    if isinstance(error, BrokenPipeError):
        sys.exit(0)
    fail(reason_of(error))


def drop_output() -> None:
    """Discard the rest of standard output: Python would fail again when it flushes it at exit."""
    empty = system_calls.open_file(os.devnull, os.O_WRONLY)
    with suppress(OSError, ValueError):  # a stream of a test has no descriptor
        os.dup2(empty, sys.stdout.fileno())
    os.close(empty)
