"""Decodes keys and values in a registry's wire format. Blocks: call it on a thread.

It needs the libraries of the extra ``sql``; without them such values are shown as bytes.
"""

import json
from collections.abc import Callable
from typing import Any

from ottla.console.record_views import Decode
from ottla.formats.registry_client import RegistryFailed, RegistrySettings


def decoder_of(topic: str, settings: RegistrySettings | None) -> Decode | None:
    """Return a decoder of the keys and values of a topic; None without a registry."""
    if settings is None:
        return None
    try:
        from ottla.formats.registry_values import SubjectValues
    except ImportError:
        return None
    subjects = {part: SubjectValues(settings, f"{topic}-{part}") for part in ("key", "value")}
    failures: set[str] = set()

    def decode(part: str, data: bytes) -> tuple[str, str] | None:
        if len(data) < 6 or data[0] != 0 or part in failures:
            return None
        try:
            fields = subjects[part].decode(data)
        except RegistryFailed:
            failures.add(part)  # it would make every record wait
            return None
        except ValueError:
            return None
        return "schema", json.dumps(fields, ensure_ascii=False, default=_plain)

    return decode


def value_decoder(decode: Decode | None) -> Callable[[bytes], str | None] | None:
    """Return what decodes values alone to JSON."""
    if decode is None:
        return None

    def decode_value(data: bytes) -> str | None:
        decoded = decode("value", data)
        return None if decoded is None else decoded[1]

    return decode_value


def _plain(value: Any) -> object:  # noqa: ANN401 - of any schema
    return value.hex() if isinstance(value, bytes) else str(value)
