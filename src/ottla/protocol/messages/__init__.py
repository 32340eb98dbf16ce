"""Every message of every API, one module each, imported when an API is first spoken.

`request_class` and `response_class` find a message by api key. Modules other than this one
are written by `tools.generate_messages`.
"""

import importlib
from functools import cache

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema import Message


@cache
def request_class(key: ApiKey) -> type[Message]:
    """Return the request of an API, all versions in one class."""
    return _message(key, "Request")


@cache
def response_class(key: ApiKey) -> type[Message]:
    """Return the response of an API, all versions in one class."""
    return _message(key, "Response")


def _message(key: ApiKey, role: str) -> type[Message]:
    module = importlib.import_module(f"{__name__}.{key.name.lower()}")
    found: type[Message] = getattr(module, f"{key.title}{role}")
    return found
