"""Read a text file that an option names."""

import os


class UnreadableFile(ValueError):
    """The file cannot be read as text; the message begins with its path."""


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file in UTF-8. Raises `UnreadableFile`."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise UnreadableFile(f"{os.fspath(path)}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UnreadableFile(
            f"{os.fspath(path)}: is not a text file in UTF-8: {error.reason} at byte {error.start}"
        ) from error
