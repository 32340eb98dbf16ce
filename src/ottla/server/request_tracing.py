"""What a trace of a request takes from its reply: its size and its error.

Only sampled requests get here, so replies that a handler encoded itself are decoded again.
"""

from collections.abc import Iterator
from typing import Final

from ottla.api.surface.replies import Answer, NoReply, Result, is_file, length_of
from ottla.protocol.codec import decode_prefix
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import ProtocolFault
from ottla.protocol.frames import Request
from ottla.protocol.messages import response_class
from ottla.protocol.schema import Message

# A reply larger than this is not decoded to look for an error.
DECODED_BYTES_MAX: Final = 16 * 1024
_VISITED_MAX: Final = 1000


def error_of(request: Request, result: Result) -> ErrorCode:
    """Return the first error of a reply: of the request, else of one of its parts."""
    body = result.body if isinstance(result, Answer) else result
    if isinstance(body, NoReply):
        return ErrorCode.NONE
    if not isinstance(body, Message):
        if any(map(is_file, body)) or sum(map(length_of, body)) > DECODED_BYTES_MAX:
            return ErrorCode.NONE
        encoded = b"".join(bytes(chunk) for chunk in body if not is_file(chunk))  # type: ignore[arg-type]
        try:
            body, _ = decode_prefix(response_class(request.key), request.version, encoded)
        except ProtocolFault:
            return ErrorCode.NONE
    return next((code for code in _errors(body) if code), ErrorCode.NONE)


def _errors(message: Message) -> Iterator[ErrorCode]:
    """Yield error codes, those of outer messages first; look at `_VISITED_MAX` messages."""
    level, visited = [message], 0
    while level and visited < _VISITED_MAX:
        following: list[Message] = []
        for each in level[: _VISITED_MAX - visited]:
            visited += 1
            for name in each.__struct_fields__:
                value = getattr(each, name)
                if name == "error_code":
                    yield ErrorCode(value)
                elif isinstance(value, Message):
                    following.append(value)
                elif isinstance(value, list | tuple):
                    following += [
                        item for item in value[:_VISITED_MAX] if isinstance(item, Message)
                    ]
        level = following
