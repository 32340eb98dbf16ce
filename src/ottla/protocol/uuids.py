"""Kafka's text form of a UUID: its 16 bytes as URL-safe base64 without padding, 22 characters.

`ZERO_UUID` means "none". Kafka gives meaning to the lowest values (zero and one for topics, the
first hundred for log directories), so a random UUID must not be one of them; nor may its text
begin with ``-``, which tools would parse as an option.
"""

import base64
import binascii
from typing import Final

from ottla.protocol.types import Uuid

RESERVED_LIMIT: Final = 100
"""Values below this, read as one big-endian number, are Kafka's own."""


_TEXT_LENGTH_MAX: Final = 24  # Kafka's own limit: padding is tolerated


def uuid_text(value: Uuid) -> str:
    """Return Kafka's text form, 22 characters."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def parse_uuid(text: str) -> Uuid:
    """Parse the text form.

    Raises:
        ValueError: not 16 bytes in URL-safe base64.
    """
    # The decoder would also accept the two characters of the standard alphabet.
    if len(text) > _TEXT_LENGTH_MAX or not text.isascii() or "+" in text or "/" in text:
        raise ValueError(f"not a UUID: {text[:_TEXT_LENGTH_MAX]!r}")
    try:
        value = base64.b64decode(text.rstrip("=") + "==", altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(f"not a UUID: {text!r}") from error
    if len(value) != 16:
        raise ValueError(f"not a UUID: {text!r} has {len(value)} bytes, not 16")
    return Uuid(value)


def is_reserved(value: Uuid) -> bool:
    """Return whether Kafka reserves this value, so that no topic or directory may have it."""
    return int.from_bytes(value) < RESERVED_LIMIT
