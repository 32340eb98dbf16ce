"""Messages to bytes and back. Code is written for each (message, version) on first use.

`decode` takes bytes from strangers: every length is compared with the bytes that remain before
anything is made, nothing but a `ProtocolFault` comes out, and memory stays within a constant
times the size of the buffer. `encode` takes messages of ours: one that cannot travel is our bug
and raises ``ValueError`` naming message, field and value.

Start at `compiled.py` for the entrances, `layout.py` for what a version looks like,
`reading.py` and `writing.py` for the code that is written, `primitives.py` for what it calls.
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
