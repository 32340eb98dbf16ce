"""Decides a forwarded request only once, even if it is sent again (KIP-590 with added request ids).

    first attempt   decide -> records and, in the same batch, the request's id with its reply
    later attempts  the id is in the newest state -> no records, the same reply

The newest state includes appended but uncommitted records; the reply to a second attempt waits for
the commit like any other. A decision without records is not stored: it changed nothing, so deciding
again is harmless. When leadership is lost, the uncommitted state is dropped together with its ids,
and the next controller knows exactly those that were committed.
"""

from collections.abc import Callable, Generator

import msgspec

from ottla.controller.decision import Decision, Steps
from ottla.metadata.answered_requests import RequestIdentity
from ottla.metadata.image import Image
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.codec import decode, encode
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_cluster import NoOpRecord
from ottla.protocol.messages import response_class
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenResponse
from ottla.protocol.messages.create_topics import CreateTopicsResponse
from ottla.protocol.schema import Message
from ottla.protocol.types import Uuid

Restore = Callable[[Message], Message]
"""Restores what `_kept` leaves out of a reply."""


def decide_once(
    image: Image,
    key: ApiKey,
    identity: RequestIdentity,
    decide: Callable[[], Decision[Message] | Steps[Decision[Message]]],
    restore: Restore,
) -> Decision[Message] | Steps[Decision[Message]]:
    """Return the decision, or the reply of an earlier attempt that is stored in ``image``."""
    answered = image.answered.get(identity.id)
    if answered is not None and answered.api_key == key:
        reply = decode(response_class(key), APIS[key].versions[1], answered.reply)
        return Decision([], restore(reply))
    decided = decide()
    if isinstance(decided, Generator):
        return _noted_steps(key, identity.id, decided)
    return _noted(key, identity.id, decided)


def _noted_steps(
    key: ApiKey, request_id: Uuid, steps: Steps[Decision[Message]]
) -> Steps[Decision[Message]]:
    decision = yield from steps
    yield
    return _noted(key, request_id, decision)


def _noted(key: ApiKey, request_id: Uuid, decision: Decision[Message]) -> Decision[Message]:
    if decision.records:
        decision.records.append(_note(key, request_id, decision.reply))
    return decision


def _note(key: ApiKey, request_id: Uuid, reply: Message) -> Versioned:
    encoded = encode(_kept(reply), APIS[key].versions[1])
    return Versioned(
        NoOpRecord(request_id=request_id, request_api_key=int(key), reply=encoded), version=0
    )


def _kept(reply: Message) -> Message:
    """Return a reply without its large or secret parts, which can be computed again."""
    if isinstance(reply, CreateTopicsResponse):
        topics = [msgspec.structs.replace(topic, configs=[]) for topic in reply.topics]
        return msgspec.structs.replace(reply, topics=topics)
    if isinstance(reply, CreateDelegationTokenResponse):
        return msgspec.structs.replace(reply, hmac=b"")
    return reply
