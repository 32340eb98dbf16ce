"""Validation of object keys: plain relative paths, independent of the store.

A key that leaves its directory (``..``, a leading ``/``) or that two stores would interpret
differently (empty parts, control characters) is a bug or an attack through a name, so it is
rejected before it reaches a store.
"""

import re
from typing import Final

# The limit of S3, in bytes of UTF-8.
KEY_BYTES_MAX = 1024
_UNSAFE: Final = re.compile(r"[\\\x00-\x1f\x7f]")


def check_key(key: str) -> None:
    """Raise ``ValueError`` for a key that is not a plain relative path."""
    if not key:
        raise ValueError("an object key must not be empty")
    if len(key.encode()) > KEY_BYTES_MAX:
        raise ValueError(f"object key longer than {KEY_BYTES_MAX} bytes: {key[:80]!r}...")
    if any(part in ("", ".", "..") for part in key.split("/")):
        raise ValueError(f"object key with an empty, '.' or '..' part: {key!r}")
    if _UNSAFE.search(key):
        raise ValueError(f"object key with a backslash or control character: {key!r}")


def check_prefix(prefix: str) -> None:
    """Raise ``ValueError`` for a prefix that no key can start with; empty means all keys."""
    if prefix:
        check_key(prefix.removesuffix("/"))
