"""``kept-until``: until when a log keeps files that precede its start; see ADR 0099.

    0                 version
    3735928559        CRC-32 of the next line
    1700000000000     wall clock in milliseconds

Text, every line ends with ``\\n``. The file exists while something is kept, so that a restart
neither drops the files nor lets the delay begin again. Kafka ignores it. A damaged one counts as
missing.
"""

import zlib
from typing import Final

from ottla.protocol.types import Millis
from ottla.runtime.atomic_file import read_file, replace_unsynced
from ottla.runtime.ports import Disk

FILE_NAME: Final = "kept-until"
_VERSION: Final = b"0"


def encode(until: Millis) -> bytes:
    """Return the bytes of the file."""
    body = b"%d\n" % until
    return b"%s\n%d\n%s" % (_VERSION, zlib.crc32(body), body)


def read_kept_until(disk: Disk, directory: str) -> Millis | None:
    """Read the time; None if there is none, or the file is damaged. Raises OSError."""
    lines = (read_file(disk, f"{directory}/{FILE_NAME}") or b"").splitlines()
    if len(lines) == 3 and lines[2].isdigit():
        until = Millis(int(lines[2]))
        if encode(until).splitlines() == lines:
            return until
    return None


def write_kept_until(disk: Disk, directory: str, until: Millis) -> None:
    """Replace the file; a power failure may leave none, and the delay begins again. OSError."""
    replace_unsynced(disk, f"{directory}/{FILE_NAME}", encode(until))
