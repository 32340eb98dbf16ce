"""Encodes and decodes messages. Code is generated per (message, version) on first use.

`decode` reads untrusted bytes: every length is compared with the remaining bytes before anything is
allocated, the only exception is a `ProtocolFault`, and memory stays within a constant times the
size of the buffer. `encode` writes our own messages: one that cannot be encoded is a bug and raises
``ValueError`` naming message, field and value.

Start at `compiled.py` for the entry points, `layout.py` for the layout of a version, `reading.py`
and `writing.py` for the generated code, `primitives.py` for the functions it calls.
"""

from ottla.protocol.codec.compiled import (
    decode,
    decode_prefix,
    decode_steps,
    encode,
    encode_into,
    encode_steps,
)

__all__ = ["decode", "decode_prefix", "decode_steps", "encode", "encode_into", "encode_steps"]
