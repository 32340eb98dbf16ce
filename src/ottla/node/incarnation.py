"""The file ``incarnation_id``: tells a controller whether two registrations are the same broker.

One line, a UUID in Kafka's text form. Created once, before the first registration; it stays the
same after a restart and changes when the directory is lost.
"""

import logging
from typing import Final

from ottla.protocol.types import Uuid
from ottla.protocol.uuids import is_reserved, parse_uuid, uuid_text
from ottla.runtime.atomic_file import read_file, replace_file
from ottla.runtime.ports import Disk, Random

log = logging.getLogger(__name__)

FILE_NAME: Final = "incarnation_id"


def load_incarnation(disk: Disk, directory: str, random: Random) -> Uuid:
    """Return this broker's incarnation id; create it durably if there is none.

    A damaged one is replaced: to the controller this is then another broker with the same id, which
    it registers once the session of the previous one has ended. Kafka creates a new id at each
    start.

    Raises:
        OSError: it cannot be read or written.
    """
    path = f"{directory}/{FILE_NAME}"
    data = read_file(disk, path)
    if data is not None:
        try:
            found = parse_uuid(data[:64].decode("ascii").strip())
            if is_reserved(found):
                raise ValueError("a reserved id")
        except ValueError as error:
            log.warning("incarnation id damaged, creating a new one path=%s reason=%s", path, error)
        else:
            return found
    made = random.uuid()
    replace_file(disk, path, f"{uuid_text(made)}\n".encode())
    return made
