"""Numbers of bytes: in a suitable unit for people, exact for programs."""

from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class ByteCount(int):
    """A number of bytes in an answer: human in a table, a plain number in JSON and YAML."""


def byte_count(size: int) -> ByteCount | None:
    """Return a size that a broker reports, which is negative if it is not known."""
    return ByteCount(size) if size >= 0 else None


def human(size: float) -> str:
    """Return a number of bytes in a suitable unit."""
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")
