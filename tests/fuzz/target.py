"""One step of fuzzing an API: encode a frame, mutate it, and check that it is read or rejected.

A step is determined by (seed, api key, number), so these three replay a failure.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.fuzz.mutations import mutated
from tests.fuzz.samples import sample

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.codec import decode, encode
from ottla.protocol.faults import ProtocolFault
from ottla.protocol.frames import (
    FrameSplitter,
    Request,
    parse_request_header,
    request_frame,
)
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages import request_class, response_class
from ottla.protocol.schema import Message

FRAME_SIZE_MAX = 1 << 20
VARIANTS = 20  # mutated copies of each valid message


@dataclass
class Tally:
    """The outcomes of a run's inputs."""

    read: int = 0
    refused: int = 0


def run_step(seed: int, key: ApiKey, number: int, tally: Tally) -> None:
    """Fuzz one request and one response of an API, each in a random version."""
    random = Random(f"{seed}/{key.name}/{number}")
    first, last = APIS[key].versions
    version = random.randint(first, last)
    request = sample(request_class(key), version, random)
    response = sample(response_class(key), version, random)
    body = encode(response, version)
    client_id = random.choice((None, "", "client"))
    header = RequestHeader(key, version, random.getrandbits(31), client_id)
    frame = bytes(request_frame(header, request))
    receive(frame)
    check(type(response), version, body)
    for _ in range(VARIANTS):
        count(tally, receive, mutated(frame, random, body))
        count(tally, check, type(response), version, mutated(body, random, frame))


def count(tally: Tally, work: Callable[..., None], *arguments: object) -> None:
    """Call something; a ProtocolFault is as good as success, anything else is a finding."""
    try:
        work(*arguments)
    except ProtocolFault:
        tally.refused += 1
    else:
        tally.read += 1


def receive(stream: bytes) -> None:
    """Process bytes as a broker does: split frames, read headers, decode bodies."""
    for frame in FrameSplitter(FRAME_SIZE_MAX, size_start=64).feed(stream):
        request = parse_request_header(frame)
        if isinstance(request, Request):
            check(request_class(request.key), request.version, request.body)


def check(message: type[Message], version: int, data: bytes | memoryview) -> None:
    """Decode; a decoded message must be stable: its encoded bytes decode to the same message."""
    understood = decode(message, version, data)
    once = encode(understood, version)
    assert encode(decode(message, version, once), version) == once
