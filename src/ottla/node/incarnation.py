"""The file ``incarnation_id``: by which a controller knows one broker from another on its id.

One line, a UUID in Kafka's text form. Made once, before the first registration; the same after
a restart, another one after the directory was lost.
"""

from typing import Final

from ottla.protocol.types import Uuid
from ottla.protocol.uuids import is_reserved, parse_uuid, uuid_text
from ottla.runtime.atomic_file import read_file, replace_file
from ottla.runtime.ports import Disk, Random

FILE_NAME: Final = "incarnation_id"


class UnreadableIncarnation(Exception):
    """The file is there and holds no id."""


def load_incarnation(disk: Disk, directory: str, random: Random) -> Uuid:
    """Return this broker's incarnation id, made and written durably where there is none.

    Raises:
        UnreadableIncarnation: the file is damaged. OSError: it cannot be read or written.
    """
    path = f"{directory}/{FILE_NAME}"
    data = read_file(disk, path)
    if data is None:
        made = random.uuid()
        replace_file(disk, path, f"{uuid_text(made)}\n".encode())
        return made
    try:
        found = parse_uuid(data[:64].decode("ascii").strip())
        if is_reserved(found):
            raise ValueError("a reserved id")
    except ValueError as error:
        raise UnreadableIncarnation(f"{path}: {error}; remove it, a new one is made") from error
    return found
