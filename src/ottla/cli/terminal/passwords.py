"""Read a password from a file, from standard input, or from a prompt on the terminal."""

import sys
from pathlib import Path

import typer

from ottla.cli.terminal.failures import fail
from ottla.cli.terminal.text_files import UnreadableFile, read_text


def read_password(user: str, file: Path | None) -> str:
    """Return a password. It is never an argument, since other users can see the command line."""
    if file is not None and str(file) != "-":
        try:
            return _checked(read_text(file))
        except UnreadableFile as error:
            fail(f"--password-file {error}")
    if file is None and sys.stdin.isatty():
        return _checked(
            typer.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True)
        )
    return _checked(sys.stdin.readline())


def _checked(text: str) -> str:
    password = text.rstrip("\r\n")
    if not password:
        fail("the password is empty")
    return password
