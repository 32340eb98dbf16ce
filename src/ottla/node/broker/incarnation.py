"""The id of an incarnation of a broker, and the file ``incarnation_id`` from which it is made.

    8 bytes of the file's id, which stay the same after a restart | 8 bytes drawn at each start

An Ottla controller recognises a restarted broker by the first half, and does not make it wait for
its own old session. To an Apache Kafka controller the whole id counts: it takes a registration with
the same one for a repeated request, and the broker would keep its epoch and its controlled
shutdown, and would never join an ISR again.

The file has one line, a UUID in Kafka's text form. It is created once, before the first
registration, and changes when the directory is lost.
"""

import logging
from typing import Final

from ottla.metadata.registrations import DIRECTORY_BYTES
from ottla.protocol.types import Uuid
from ottla.protocol.uuids import is_reserved, parse_uuid, uuid_text
from ottla.runtime.atomic_file import read_file, replace_file
from ottla.runtime.ports import Disk, Random

log = logging.getLogger(__name__)

FILE_NAME: Final = "incarnation_id"


def load_incarnation(disk: Disk, directory: str, random: Random) -> Uuid:
    """Return the id of a new incarnation; create the file durably if there is none.

    A damaged file is replaced: to the controller this is then another broker with the same id,
    which it registers once the session of the previous one has ended.

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
            return _incarnation(found, random)
    made = random.uuid()
    replace_file(disk, path, f"{uuid_text(made)}\n".encode())
    return _incarnation(made, random)


def _incarnation(directory: Uuid, random: Random) -> Uuid:
    return Uuid(directory[:DIRECTORY_BYTES] + random.uuid()[DIRECTORY_BYTES:])
