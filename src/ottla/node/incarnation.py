"""The file ``incarnation_id``: by which a controller knows one broker from another on its id.

One line, a UUID in Kafka's text form. Made once, before the first registration; the same after
a restart, another one after the directory was lost.
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
    """Return this broker's incarnation id, made and written durably where there is none.

    One that is damaged is replaced: to the controller this is then another broker on the same id,
    which it registers once the session of the one before has ended. Kafka has a new one each time.

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
            log.warning("incarnation id damaged, a new one is made path=%s reason=%s", path, error)
        else:
            return found
    made = random.uuid()
    replace_file(disk, path, f"{uuid_text(made)}\n".encode())
    return made
